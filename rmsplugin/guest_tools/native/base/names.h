/* This VM's facts about its vjob, lists of VMs, and ranges of numbers as Slurm writes them. */

#ifndef NAMES_H
#define NAMES_H

#include "memory.h"
#include "places.h"

#include <stdbool.h>

struct vjob {
    uint32_t job_id, index, cpus, memory_mib, ntasks;
    uint32_t slurm_release; /* of the site's Slurm: the year, as 22 of 22.05.8; 0: unknown */
    char slurm_version[32];
    uint32_t kill_wait;     /* the site's KillWait: seconds from SIGTERM to SIGKILL */
    uint32_t *all_cpus;     /* count: CPUs of each VM */
    size_t count;
    char **names; /* of its VMs */
};

struct vjob vjob_read(void); /* ends the program with a sentence if the files are missing */
char *ranges(const uint32_t *sorted, size_t count); /* 0-3,5 */
char *host_list(const struct vjob *vjob, const uint32_t *vms, size_t count); /* vjob12-[0-1] */
char *counts_list(const uint32_t *counts, size_t count);                     /* 2(x3),1 */

/* VMs of a list such as vjob12-[0-2,4],vjob12-7*2, each as often as it stands there; returns how many, or -1 when a name is
 * none of this vjob's. */
int parse_host_list(const struct vjob *vjob, const char *text, uint32_t **vms);

#endif
