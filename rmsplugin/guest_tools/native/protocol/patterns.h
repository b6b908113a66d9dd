/* Names of the files of a step's streams, from Slurm's patterns (srun(1), "IO Redirection"). */

#ifndef PATTERNS_H
#define PATTERNS_H

#include "plan.h"

/* What srun knows of a step. */
struct pattern_facts {
    uint32_t job_id, step;
};

/* The pattern with all that srun knows put in (%A %a %J %j %s %x); what remains (%N %n %t %u %%) is of each task.
 * per_task: whether something remains. */
char *pattern_of_srun(const char *given, const struct pattern_facts *facts, bool *per_task);

/* The name that such a pattern is where nothing remains but %%. */
char *pattern_unquoted(const char *pattern);

/* The name of a task's file. */
char *pattern_of_task(const char *pattern, const struct plan *plan, uint32_t task);

#endif
