/* The VMs of a step, and the VM of each of its tasks. */

#ifndef LAYOUT_H
#define LAYOUT_H

#include "wire.h"

enum distribution { BLOCK, CYCLIC, PLANE, ARBITRARY };

enum { NAME_BYTES = 64 };

/* The needs of a component of a step; `srun a : b` has two (srun(1), "HETEROGENEOUS JOB STEPS"). */
struct request {
    uint32_t ntasks, cpus_per_task;
    uint32_t nodes;    /* number of VMs; 0: as many as needed */
    uint32_t per_node; /* tasks in a VM, at most; 0: as its CPUs allow */
    uint32_t distribution;
    uint32_t overlap, overcommit, immediate;
    uint32_t vm_count, *vms; /* that may be taken, in this order */
    uint32_t must;           /* the number of them, the first ones, that are required */
    char name[NAME_BYTES];   /* of the step, for Slurm */
    uint32_t pack;           /* fill a VM before the next one gets a second task */
    uint32_t plane;          /* tasks of a plane, for PLANE */
    uint32_t limit_s;        /* for the step; 0: none */
    uint32_t place_count, *places; /* the VM of each task, for ARBITRARY */
};

struct requests {
    uint32_t count;
    struct request *each;
};

struct layout {
    uint32_t ntasks, vm_count;
    uint32_t *vms;    /* vm_count: VM of each node of the step */
    uint32_t *counts; /* vm_count: tasks there */
    uint32_t *component; /* vm_count: the component of each node; a component's nodes are next to each other */
    uint32_t *node_of; /* ntasks: index in vms */
};

enum fit { FITS, BUSY, NEVER };

enum { MAXIMUM_TASKS = 65536, MAXIMUM_COMPONENTS = 128 };

void requests_put(struct buffer *buffer, const struct requests *requests);
bool requests_get(struct reader *reader, uint32_t vms, struct requests *requests); /* of a vjob with so many VMs */
void requests_free(struct requests *requests);
uint32_t requests_tasks(const struct requests *requests);

/* Lay a step out on VMs that have cpus[vm] CPUs, of which used[vm] are taken. layout is made only when it FITS. No two
 * components share a VM, as in Slurm. */
enum fit layout_make(const struct requests *requests, uint32_t vms, const uint32_t *cpus, const uint32_t *used,
                     struct layout *layout);
/* CPUs that so many of the component's tasks take in a VM. */
uint32_t layout_cpus(const struct request *request, uint32_t tasks, uint32_t cpus);
void layout_put(struct buffer *buffer, const struct layout *layout);
bool layout_get(struct reader *reader, uint32_t vms, struct layout *layout); /* of a vjob with so many VMs */
void layout_free(struct layout *layout);

#endif
