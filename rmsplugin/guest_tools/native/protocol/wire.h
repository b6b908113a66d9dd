/* Frames between srun, the hub, the agents and the steppers, and the connections that carry them.
 *
 * A frame: size of its data (4 bytes), type (1), unused (1), VM (2), step (4), task (4), all little-endian; data. */

#ifndef WIRE_H
#define WIRE_H

#include "base/memory.h"

#include <stdbool.h>

enum {
    FRAME_HEADER = 16,
    FRAME_LIMIT = 16 << 20, /* a step's environment and arguments fit; a larger frame is none of ours */
    WINDOW = 256 << 10,     /* bytes of a step that may be under way from or to a VM, unacknowledged */
    CHUNK = 16 << 10,
};

enum frame_type {
    /* between srun and the hub */
    REQUEST = 1, /* the needs of the step (layout.h) */
    WAITING,     /* its CPUs are busy */
    GRANT,       /* its number, and the places of its tasks */
    REFUSED,     /* a sentence */
    /* from srun to the step in a VM */
    START,       /* what to run (plan.h) */
    INPUT,       /* for the tasks' standard input; no data: its end */
    OUTPUT_TAKEN, /* data: how many bytes were written out */
    SIGNAL,      /* task: the signal */
    END,         /* SIGTERM, and after `task` seconds SIGKILL; 0: SIGKILL alone */
    ORPHANED,    /* srun is gone: nobody reads the output any more */
    /* from the step in a VM to srun */
    OUTPUT,
    ERRORS,
    INPUT_TAKEN, /* data: how many bytes of input are no longer held */
    EXITED,      /* data: status as of waitpid, task numbers */
    SAYS,        /* a line for the user */
    DONE,        /* all tasks have ended, all output was sent */
    FAILED,      /* the VM, or the process that ran the tasks there, is gone: a sentence */
    /* from the wrapper's `rmsplugin-guest control` to the hub, for one step */
    SIGNAL_STEP, /* task: the signal */
    /* from the hub to srun */
    CANCELLED, /* Slurm was asked to end the step, or the script has ended; task: SIGTERM at the step's time limit */
    /* from `rmsplugin-guest` to the hub */
    END_STEPS, /* the script has ended: so do its steps, and then this connection */
};

struct frame {
    uint8_t type;
    uint16_t vm;
    uint32_t step, task;
    uint32_t size;
    char *data; /* valid until the connection is read again */
};

struct connection {
    int in, out;
    struct buffer input, output;
    bool broken;
};

void connection_open(struct connection *connection, int in, int out); /* makes both non-blocking */
void connection_close(struct connection *connection);
void connection_fill(struct connection *connection);  /* reads what is there; sets `broken` at its end */
void connection_flush(struct connection *connection); /* writes what is possible; drops data that never can be written */
bool connection_next(struct connection *connection, struct frame *frame);
void connection_send(struct connection *connection, const struct frame *frame);
void send_data(struct connection *connection, uint8_t type, uint16_t vm, uint32_t step, uint32_t task, const void *data,
               size_t size);
void send_number(struct connection *connection, uint8_t type, uint16_t vm, uint32_t step, uint32_t number);

/* The data of frames: numbers of four bytes, and texts with their NUL. */
struct reader {
    const char *at, *end;
    bool bad; /* there was less data than requested */
};

struct reader reader_of(const struct frame *frame);
uint32_t get_number(struct reader *reader);
size_t numbers_left(const struct reader *reader); /* an upper bound, to check a count against */
const char *get_text(struct reader *reader); /* inside the frame; "" when bad */
void put_number(struct buffer *buffer, uint32_t number);
void put_text(struct buffer *buffer, const char *text);

#endif
