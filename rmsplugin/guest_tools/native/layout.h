/* Which VMs a step has, and which of its tasks run where. */

#ifndef LAYOUT_H
#define LAYOUT_H

#include "wire.h"

enum distribution { BLOCK, CYCLIC };

enum { NAME_BYTES = 64 };

struct request {
    uint32_t ntasks, cpus_per_task;
    uint32_t nodes;    /* number of VMs; 0: as many as it takes */
    uint32_t per_node; /* tasks in a VM, at most; 0: as its CPUs allow */
    uint32_t distribution;
    uint32_t overlap, overcommit, immediate;
    uint32_t vm_count, *vms; /* that may be taken, in this order */
    uint32_t must;           /* the first ones of them that have to be */
    char name[NAME_BYTES];   /* of the step, for Slurm */
};

struct layout {
    uint32_t ntasks, vm_count;
    uint32_t *vms;    /* vm_count: VM of each node of the step */
    uint32_t *counts; /* vm_count: tasks there */
    uint32_t *node_of; /* ntasks: index in vms */
};

enum fit { FITS, BUSY, NEVER };

enum { MAXIMUM_TASKS = 65536 };

void request_put(struct buffer *buffer, const struct request *request);
bool request_get(struct reader *reader, struct request *request);
void request_free(struct request *request);

/* Lay a step out on VMs with `cpus` CPUs each of which used[vm] are taken. layout is made only when it FITS. */
enum fit layout_make(const struct request *request, uint32_t cpus, const uint32_t *used, struct layout *layout);
/* CPUs that so many of the step's tasks take in a VM. */
uint32_t layout_cpus(const struct request *request, uint32_t tasks, uint32_t cpus);
void layout_put(struct buffer *buffer, const struct layout *layout);
bool layout_get(struct reader *reader, struct layout *layout);
void layout_free(struct layout *layout);

#endif
