/* The programs of --task-prolog and --task-epilog: run as the user, before and after each task. */

#ifndef TASK_SCRIPTS_H
#define TASK_SCRIPTS_H

#include "protocol/plan.h"

#include <sys/types.h>

/* In the process that becomes the task, with the task's streams, directory and environment: run the prolog and obey
 * its output (`export NAME=VALUE`, `unset NAME`, `print TEXT`). Ends this process if the prolog fails. */
void task_prolog(const struct plan *plan);

/* In the step's process: start the epilog of a task; `errors` is the standard error of the first task here, to which the
 * epilog writes. Returns its process, or 0 if none runs. */
pid_t task_epilog_start(const struct plan *plan, uint32_t local, int errors);

void task_epilog_stop(pid_t process);                     /* it takes too long */
void task_epilog_ended(const struct plan *plan, pid_t process, int status, int errors);

#endif
