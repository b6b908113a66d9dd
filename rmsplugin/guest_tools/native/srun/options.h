/* srun's options, from its arguments and its environment. */

#ifndef OPTIONS_H
#define OPTIONS_H

#include "base/names.h"
#include "protocol/layout.h"
#include "distribution.h"
#include "programs_file.h"

struct options {
    struct request request; /* the request; vms: those of -w first, without those of -x and -r */
    bool label, unbuffered, quiet, kill_on_bad_exit, no_abort_status, quit_on_interrupt, multi_prog;
    bool append, open_mode_given;
    bool whole, exact, keep_counts; /* -E: SLURM_NTASKS and SLURM_NNODES stay as they are */
    int verbose;
    uint32_t wait_s;  /* after the first task's end; 0: for ever */
    const char *files[3]; /* -i, -o, -e; NULL: not given */
    const char *directory, *job_name, *exported, *task_prolog, *task_epilog;
    bool job_name_given, cpus_given, bcast;
    const char *bcast_to; /* --bcast=PATH; NULL: not given */
    struct distribution_asked distribution;
    struct programs programs; /* of --multi-prog */
    char **command; /* ends with NULL */
    int words;
};

/* The words about the VMs and the number of tasks: options_count.c makes the request of them. */
struct lists {
    const char *wanted, *file, *excluded;
    uint32_t relative;
    bool relative_given;
    bool nodes_given, ntasks_given; /* as options */
    bool one_of_several; /* a component: SLURM_NNODES is the job's, not its own */
};

/* Read the options of all components (`srun a : b` has two); returns their number. Ends the program if they are
 * wrong, or if only a text was asked for (--help, ...). */
uint32_t options_read(struct options **all, const struct vjob *vjob, int argc, char **argv);

void options_count(struct options *options, struct lists *lists, const struct vjob *vjob);
void options_help(void);

#endif
