/* srun's lines on standard error, in Slurm's form. */

#ifndef MESSAGES_H
#define MESSAGES_H

void messages_quiet(void); /* from now on errors only */
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void error_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
int error_code(void); /* SLURM_EXIT_ERROR, or 1 */
/* Code 1 stands for error_code(). */
_Noreturn void error_exit(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
