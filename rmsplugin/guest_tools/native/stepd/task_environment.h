/* What a process of a task, or of its epilog, starts with; called in that process. */

#ifndef TASK_ENVIRONMENT_H
#define TASK_ENVIRONMENT_H

#include "protocol/plan.h"

/* Set the variables by which it knows its task. */
void task_environment_of(const struct plan *plan, uint32_t local);
void task_number(const char *name, uint32_t value); /* set one more variable */

void signals_as_usual(void); /* no signal is ignored or blocked */

#endif
