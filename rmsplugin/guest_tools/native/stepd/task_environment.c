#define _GNU_SOURCE

#include "task_environment.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

extern char **environ;

void task_number(const char *name, uint32_t value)
{
    char word[16];
    snprintf(word, sizeof word, "%u", value);
    setenv(name, word, 1);
}

void task_environment_of(const struct plan *plan, uint32_t local)
{
    /* Words, not setenv: names of any form stay (bash's exported functions). */
    environ = plan->environment.words;
    task_number("SLURM_PROCID", plan->tasks[local]);
    task_number("SLURM_LOCALID", local);
    task_number("SLURM_NODEID", plan->node);
    setenv("SLURMD_NODENAME", plan->name, 1);
    if (plan->cpus > 0)
        task_number("SLURM_CPUS_ON_NODE", plan->cpus);
}

void signals_as_usual(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}
