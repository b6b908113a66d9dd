/* The processes of a step in this VM. */

#ifndef TASKS_H
#define TASKS_H

#include "protocol/plan.h"

#include <sys/types.h>

struct task {
    uint32_t number;
    pid_t process; /* 0: has ended */
    pid_t epilog;  /* 0: none runs */
    int64_t epilog_until; /* in ms */
    int errors; /* the first task's standard error, where epilogs write; -1: there are no epilogs, or they have ended */
    int status;
    bool told;              /* srun knows how it ended */
    int input, output[2];   /* our ends of its pipes; -1: none */
    struct buffer held[2];  /* output that is not a whole line yet */
    uint64_t fed;           /* bytes of the step's input that it has taken */
};

/* Start task number `local` of the plan here; returns false, with the reason on `problem`, if no process is possible. */
bool task_start(const struct plan *plan, uint32_t local, struct task *task, char **problem);

#endif
