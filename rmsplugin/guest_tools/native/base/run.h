/* The run of the job whose wrapper has this VM: a job that is requeued has a new one, and the wrapper before may live on. */

#ifndef RUN_H
#define RUN_H

enum { SUPERSEDED = 4 }; /* exit code: a wrapper of a later run was here */

/* The command is a wrapper's of the run of that number, which counts from 0. Ends the program if a later one was here. A
 * wrapper that tells no number is never refused. */
void enter_run(const char *number);

/* As long as this process runs, the wrapper of its connection may write what it has read. Call it before enter_run: then no
 * later run misses it. */
void hold_connection(void);

/* If this command was the first to tell its number, and one of an earlier run was there: return when wrappers of earlier runs
 * have let go of their connections, or after three seconds. */
void await_former_wrappers(void);

/* What ends the wait of a command: this file grows when a later run comes. NULL: the command told no number. */
const char *run_file(void);

void leave_if_superseded(void); /* ends the program if a later run has come since */

#endif
