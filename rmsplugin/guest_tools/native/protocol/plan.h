/* srun's message to the step in a VM: all that its tasks there need. */

#ifndef PLAN_H
#define PLAN_H

#include "wire.h"

enum { LIMITS = 16 }; /* resource limits of Linux */

enum stream_kind {
    OVER_SRUN, /* through srun */
    NOWHERE,   /* /dev/null */
    PER_TASK,  /* a file for each task, named by a pattern */
};

struct stream {
    uint32_t kind;
    uint32_t task; /* OVER_SRUN: of this task only, or ALL_TASKS */
    char *pattern;
};

#define ALL_TASKS UINT32_MAX

struct command {
    uint32_t count;
    char **words; /* count, and NULL */
};

struct plan {
    uint32_t job_id, step, ntasks, node, nodes, mask, unbuffered, append;
    uint32_t first_node; /* of the component: its nodes are counted from there in names of files */
    uint32_t cpus;   /* of this VM; 0: as many as the script's */
    uint32_t local;  /* tasks in this VM */
    uint32_t *tasks; /* local: their numbers */
    uint32_t *command_of; /* local: index in commands */
    struct stream streams[3];
    uint32_t limits[LIMITS][2]; /* soft limits: high and low half */
    char *name, *user, *directory;
    uint32_t command_count;
    struct command *commands;
    struct command environment;
    char *task_prolog, *task_epilog; /* "": none */
};

void plan_put(struct buffer *buffer, const struct plan *plan);
bool plan_get(struct reader *reader, struct plan *plan); /* texts are of the frame, which has to stay */

#endif
