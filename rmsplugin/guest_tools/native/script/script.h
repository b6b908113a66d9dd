/* The user's script: whether it has ended, and how. */

#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the script has ended; the first who sees it keeps how, in state/exit (and state/signal), and lets its supervisor
 * go. That one is stopped and never reaps the script (start.c): what the script's zombie tells is exact, where a
 * shell's $? cannot tell `exit 143` from death by SIGTERM. */
bool script_ended(void);

/* Process ids, 0 while they are not known. The script is the leader of its session. */
pid_t script_pid(void);
pid_t script_supervisor(void);

/* Become the script, in this process; ends it, with the reason in the script's standard error, where that cannot be. */
void run_script(void) __attribute__((noreturn));

/* Whether the script's steps have ended, too, which they are told to; called once the script has. */
bool script_steps_ended(void);

bool script_others_left(void); /* whether a process of its session runs still */

#endif
