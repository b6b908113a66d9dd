/* The user's script: whether it has ended, and how. */

#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the script has ended. The first process that sees it keeps the ending, in state/exit (and state/signal), and lets the
 * script's supervisor go. The supervisor sleeps and never reaps the script (start.c): the script's zombie tells the ending
 * exactly, where a shell's $? cannot tell `exit 143` from death by SIGTERM. */
bool script_ended(void);

/* Process ids, 0 while unknown. The script is the leader of its session. */
pid_t script_pid(void);
pid_t script_supervisor(void);

/* Become the script, in this process; if that is impossible, end it, with the reason in the script's standard error. */
void run_script(void) __attribute__((noreturn));

/* Whether the script's steps, which are told to end, have ended, too; called after the script's end. */
bool script_steps_ended(void);

bool script_others_left(void); /* whether a process of its session still runs */

#endif
