/* Signals by name and number. */

#ifndef SIGNALS_H
#define SIGNALS_H

int signal_number(const char *text);     /* USR1, SIGUSR1, 10; 0: there is none */
const char *signal_words(int number);    /* as strsignal of the GNU C library, which Slurm's messages have */

#endif
