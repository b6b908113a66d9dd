/* One run of srun: its request, its step, and the step's progress. */

#ifndef CLIENT_H
#define CLIENT_H

#include "protocol/plan.h"
#include "options.h"

#include <sys/types.h>

enum task_state { RUNNING, EXITED_WELL, EXITED_BADLY };

struct node {
    uint32_t vm;
    uint32_t count, *tasks; /* their numbers */
    struct component *component;
    bool done;
    uint32_t input_unread;  /* bytes of input that its tasks have not taken yet */
    uint32_t output_owed;   /* bytes of output that were taken, which has still to be told */
};

struct sink {
    int fd;
    bool file, broken;
    struct buffer waiting;
};

/* A part of the step with a command, options and VMs of its own: `srun a : b` has two, all others one. */
struct component {
    struct options options;
    uint32_t number;
    uint32_t first_task, ntasks, first_node, nodes; /* numbers within the step */
    struct stream streams[3];
    int input;             /* -1: ended, or none */
    struct sink *sinks[2]; /* output, errors; NULL: nowhere */
    int label_width;
};

struct client {
    struct vjob vjob;
    struct options options; /* of the first component: the options for the step as a whole */
    struct component *components;
    uint32_t component_count;
    struct connection hub;
    struct layout layout;
    uint32_t step;
    char *id; /* StepId: JOB.STEP */

    struct node *nodes;
    uint32_t running_nodes;
    enum task_state *tasks;

    struct sink **sinks; /* one for each fd that is written to */
    uint32_t sink_count;

    int highest;              /* exit code so far */
    bool waited, ending, broken; /* waits for CPUs; is being ended; the connection to the hub is gone */
    bool terminated;          /* a task died by SIGTERM or SIGKILL */
    bool aborted;             /* Slurm's line for a step that srun ends has been printed */
    bool cancelled;           /* by Ctrl-C: the ends of tasks are told only with -v */
    bool forced;              /* tasks were killed at once, about which Slurm prints no more */
    bool ended_by_slurm;      /* `scancel JOB.STEP`: likewise */
    int64_t started_ms, first_end_ms, interrupted_ms, kill_ms; /* 0: not yet */
};

/* ending.c */
int64_t client_now_ms(void);
void client_to_all(struct client *client, uint8_t type, uint32_t word); /* to the VMs that have tasks */
/* End the step, as slurmstepd does: SIGTERM and, so much later, SIGKILL; 0: SIGKILL alone. */
void client_end(struct client *client, uint32_t grace_s, const char *reason);
void client_say_aborted(struct client *client);
void client_say_terminating(const struct client *client);

/* request.c: the step is granted when this returns; it ends the program if it is not */
void step_create(struct client *client, int signals);

/* start.c */
void step_start(struct client *client);

/* interrupts.c */
void client_take_signal(struct client *client, int number, pid_t sender);
void client_check_times(struct client *client); /* and end the step if one of its limits is over */
int client_until_next(const struct client *client); /* milliseconds until that is to be called again; -1: never */

/* bcast.c: copy the programs to all VMs, and have the step run the copies; ends the program if that fails */
void client_bcast(struct client *client);

/* components.c */
void components_read(struct client *client, int argc, char **argv);
void components_request(const struct client *client, struct buffer *data);
void components_granted(struct client *client); /* the nodes and tasks of each component */
char *component_id(const struct client *client, const struct component *component); /* JOB.STEP, or JOB.STEP+NUMBER */

/* environment.c: of the tasks, without the variables that differ between them */
struct command task_environment(const struct client *client, const struct component *component);

/* streams.c */
void streams_choose(struct client *client); /* from -i, -o, -e; opens files; ends the program if it cannot */
bool streams_want_input(const struct client *client, const struct component *component);
void streams_read_input(struct client *client, struct component *component);
void streams_output(struct client *client, const struct frame *frame);
void streams_flush(struct client *client); /* and tell the bytes that were taken */
bool streams_waiting(const struct client *client);
struct node *node_of_task(struct client *client, uint32_t task);

/* exits.c */
void exits_take(struct client *client, struct node *node, const struct frame *frame);
void exits_node_failed(struct client *client, struct node *node, const char *why);
void exits_status(const struct client *client);

#endif
