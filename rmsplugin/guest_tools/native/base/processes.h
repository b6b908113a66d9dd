/* Processes as /proc shows them. */

#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

struct process {
    pid_t pid, session;
    char state; /* Z: it has ended, but its parent has not reaped it yet */
    int threads, exit_code;
};

bool process_look(pid_t pid, struct process *process); /* false: no process has that number */

/* Call act for each process of the session until it returns false. */
void session_each(pid_t session, bool (*act)(const struct process *process, void *context), void *context);

/* A descriptor that is readable once the process has ended; -1 with errno, ENOSYS before Linux 5.3. */
int process_open(pid_t pid);

/* From now on this process and all that it starts are processes of the job, whose use is counted (`account`). */
void enter_job(void);

/* When memory is short, the kernel should end a program of the user's rather than this process. */
void be_kept(const char *oom_score_adj);

#endif
