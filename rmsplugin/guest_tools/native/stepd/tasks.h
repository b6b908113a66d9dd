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
    int errors; /* the first task's standard error, where epilogs write; -1: there are none, or they have ended */
    int status;
    bool told;              /* srun knows how it ended */
    int input, output[2];   /* our ends of its pipes; -1: none */
    struct buffer held[2];  /* output that is no whole line yet */
    uint64_t fed;           /* bytes of the step's input that it has taken */
};

/* Start task number `local` of the plan here; returns false, and says why on `problem`, if there can be no process. */
bool task_start(const struct plan *plan, uint32_t local, struct task *task, char **problem);

/* In a process of its own: what tells it which task it is, or was, in its environment; no signal ignored or blocked. */
void task_environment_of(const struct plan *plan, uint32_t local);
void signals_as_usual(void);

void signal_descendants(int number); /* of this process, which has to be their subreaper */
bool has_descendants(void);

#endif
