/* Names of the files of a step's streams, from Slurm's patterns (srun(1), "IO Redirection"). */

#ifndef PATTERNS_H
#define PATTERNS_H

#include "plan.h"

/* The facts that srun has about a step. */
struct pattern_facts {
    uint32_t job_id, step;
};

/* The pattern with all of srun's facts put in (%A %a %J %j %s %x); the remaining fields (%N %n %t %u %%) are of each task.
 * per_task: whether any remain. */
char *pattern_of_srun(const char *given, const struct pattern_facts *facts, bool *per_task);

/* The name for a pattern in which only %% remains. */
char *pattern_unquoted(const char *pattern);

/* The name of a task's file. */
char *pattern_of_task(const char *pattern, const struct plan *plan, uint32_t task);

#endif
