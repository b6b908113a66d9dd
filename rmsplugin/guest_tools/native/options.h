/* srun's options, from its arguments and its environment. */

#ifndef OPTIONS_H
#define OPTIONS_H

#include "layout.h"
#include "names.h"

struct options {
    struct request request; /* what to ask for; vms: those of -w first, without those of -x and -r */
    bool label, unbuffered, append, quiet, kill_on_bad_exit, no_abort_status, quit_on_interrupt, multi_prog;
    int verbose;
    uint32_t wait_s;  /* after the first task's end; 0: for ever */
    uint32_t limit_s; /* for the step; 0: none */
    const char *files[3]; /* -i, -o, -e; NULL: not given */
    const char *directory, *job_name, *exported, *task_prolog, *task_epilog;
    bool job_name_given, cpus_given, bcast;
    const char *bcast_to; /* --bcast=PATH; NULL: not given */
    char **command; /* as argv, ends with NULL */
    int words;
};

/* Read them; ends the program where they are not right, or where only a text was asked for (--help, ...). */
void options_read(struct options *options, const struct vjob *vjob, int argc, char **argv);

#endif
