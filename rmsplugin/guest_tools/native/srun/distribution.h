/* --distribution and SLURM_DISTRIBUTION: how tasks go to the nodes of a step. The part behind a colon is for the sockets
 * and cores of a node, which a VM leaves to its kernel: it is read and told to the tasks, and has no other effect. */

#ifndef DISTRIBUTION_H
#define DISTRIBUTION_H

#include "protocol/layout.h"

struct distribution_asked {
    bool given; /* a type was given, not only `pack` or `nopack` */
    enum distribution type;
    uint32_t plane;
    bool pack, nopack;
    char *levels; /* "block:cyclic": as the tasks are told; NULL: nothing given */
};

/* Returns false, with Slurm's words printed, if the text is no distribution of Slurm's. */
bool distribution_read(const char *value, struct distribution_asked *asked);

/* For SLURM_DISTRIBUTION of so many tasks on so many nodes. */
char *distribution_text(const struct distribution_asked *asked, uint32_t ntasks, uint32_t nodes);

#endif
