/* --distribution and SLURM_DISTRIBUTION: how tasks go to the nodes of a step. What comes behind a colon is for the sockets
 * and cores of a node, which a VM leaves to its kernel; it is read, told to the tasks, and otherwise changes nothing. */

#ifndef DISTRIBUTION_H
#define DISTRIBUTION_H

#include "protocol/layout.h"

struct distribution_asked {
    bool given; /* a type, not only `pack` or `nopack` */
    enum distribution type;
    uint32_t plane;
    bool pack, nopack;
    char *levels; /* "block:cyclic": as the tasks are told; NULL: nothing given */
};

/* Returns false, with Slurm's words said, where it is no distribution of Slurm's. */
bool distribution_read(const char *value, struct distribution_asked *asked);

/* For SLURM_DISTRIBUTION of so many tasks on so many nodes. */
char *distribution_text(const struct distribution_asked *asked, uint32_t ntasks, uint32_t nodes);

#endif
