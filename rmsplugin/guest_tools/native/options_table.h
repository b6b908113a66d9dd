/* The options of Slurm's srun: those that mean something in a vjob, those that change nothing, those that cannot be. */

#ifndef OPTIONS_TABLE_H
#define OPTIONS_TABLE_H

#include <getopt.h>

enum option_code {
    BCAST = 256,
    CPU_BIND,
    CHANGES_NOTHING,
    EXPORT,
    HELP,
    JOB_ID,
    KILL_ON_BAD_EXIT,
    MEMORY,
    MEMORY_PER_CPU,
    MPI,
    MULTI_PROG,
    OPEN_MODE,
    OVERLAP,
    PER_NODE,
    QUIT_ON_INTERRUPT,
    REFUSED_OPTION, /* REFUSED_OPTION + n: the n-th of refused_options */
};

/* Slurm's, of which a vjob can do nothing, and what to do instead. */
static const struct {
    const char *name;
    int argument;
    const char *why;
} refused_options[] = {
    {"pty", no_argument, "use 'rmsplugin ssh JOBID' from the front, or ssh between the VMs"},
    {"bb", required_argument, "there are no burst buffers"},
    {"bbf", required_argument, "there are no burst buffers"},
    {"blrts-image", required_argument, "there is no such machine"},
    {"cluster-constraint", required_argument, "the step runs in this vjob"},
    {"epilog", required_argument, "run it in the script, after srun"},
    {"prolog", required_argument, "run it in the script, before srun"},
    {"task-epilog", required_argument, "run it in the task's own script"},
    {"task-prolog", required_argument, "run it in the task's own script"},
    {"gpus", required_argument, "VMs have no GPUs"},
    {"gpus-per-node", required_argument, "VMs have no GPUs"},
    {"gpus-per-socket", required_argument, "VMs have no GPUs"},
    {"gpus-per-task", required_argument, "VMs have no GPUs"},
    {"gres", required_argument, "VMs have no generic resources"},
    {"het-group", required_argument, "a vjob is no heterogeneous job"},
    {"pack-group", required_argument, "a vjob is no heterogeneous job"},
    {"licenses", required_argument, "ask for licences at submission"},
    {"container", required_argument, "start the container in the task's own script"},
    {"reboot", no_argument, "the VM belongs to all of the job"},
    {"test-only", no_argument, "the step's VMs are there already"},
    {"tres-per-task", required_argument, "give --cpus-per-task; VMs have no other resources"},
    {"resv-ports", optional_argument, "all ports of the VMs are the job's own"},
    {"uid", required_argument, "steps run as the job's user"},
    {"gid", required_argument, "steps run with the job's group"},
};

enum { REFUSED_COUNT = sizeof refused_options / sizeof *refused_options };

static const struct option known_options[] = {
    {"bcast", optional_argument, NULL, BCAST},
    {"chdir", required_argument, NULL, 'D'},
    {"cpu-bind", required_argument, NULL, CPU_BIND},
    {"cpu_bind", required_argument, NULL, CPU_BIND},
    {"cpus-per-task", required_argument, NULL, 'c'},
    {"disable-status", no_argument, NULL, 'X'},
    {"distribution", required_argument, NULL, 'm'},
    {"error", required_argument, NULL, 'e'},
    {"exclude", required_argument, NULL, 'x'},
    {"export", required_argument, NULL, EXPORT},
    {"help", no_argument, NULL, HELP},
    {"immediate", optional_argument, NULL, 'I'},
    {"input", required_argument, NULL, 'i'},
    {"job-name", required_argument, NULL, 'J'},
    {"jobid", required_argument, NULL, JOB_ID},
    {"kill-on-bad-exit", optional_argument, NULL, 'K'},
    {"label", no_argument, NULL, 'l'},
    {"mem", required_argument, NULL, MEMORY},
    {"mem-per-cpu", required_argument, NULL, MEMORY_PER_CPU},
    {"mpi", required_argument, NULL, MPI},
    {"multi-prog", no_argument, NULL, MULTI_PROG},
    {"nodefile", required_argument, NULL, 'F'},
    {"nodelist", required_argument, NULL, 'w'},
    {"nodes", required_argument, NULL, 'N'},
    {"ntasks", required_argument, NULL, 'n'},
    {"ntasks-per-node", required_argument, NULL, PER_NODE},
    {"open-mode", required_argument, NULL, OPEN_MODE},
    {"output", required_argument, NULL, 'o'},
    {"overcommit", no_argument, NULL, 'O'},
    {"overlap", no_argument, NULL, OVERLAP},
    {"quiet", no_argument, NULL, 'Q'},
    {"quit-on-interrupt", no_argument, NULL, QUIT_ON_INTERRUPT},
    {"relative", required_argument, NULL, 'r'},
    {"time", required_argument, NULL, 't'},
    {"unbuffered", no_argument, NULL, 'u'},
    {"usage", no_argument, NULL, HELP},
    {"verbose", no_argument, NULL, 'v'},
    {"version", no_argument, NULL, 'V'},
    {"wait", required_argument, NULL, 'W'},
    /* A VM is the step's alone but for other steps, whose CPUs are counted; the rest is the job's, not the step's. */
    {"account", required_argument, NULL, CHANGES_NOTHING},
    {"accel-bind", required_argument, NULL, CHANGES_NOTHING},
    {"acctg-freq", required_argument, NULL, CHANGES_NOTHING},
    {"comment", required_argument, NULL, CHANGES_NOTHING},
    {"compress", optional_argument, NULL, CHANGES_NOTHING},
    {"constraint", required_argument, NULL, CHANGES_NOTHING},
    {"contiguous", no_argument, NULL, CHANGES_NOTHING},
    {"core-spec", required_argument, NULL, CHANGES_NOTHING},
    {"cores-per-socket", required_argument, NULL, CHANGES_NOTHING},
    {"cpu-freq", required_argument, NULL, CHANGES_NOTHING},
    {"deadline", required_argument, NULL, CHANGES_NOTHING},
    {"delay-boot", required_argument, NULL, CHANGES_NOTHING},
    {"exact", no_argument, NULL, CHANGES_NOTHING},
    {"exclusive", optional_argument, NULL, CHANGES_NOTHING},
    {"extra-node-info", required_argument, NULL, CHANGES_NOTHING},
    {"external-launcher", no_argument, NULL, CHANGES_NOTHING},
    {"gres-flags", required_argument, NULL, CHANGES_NOTHING},
    {"hint", required_argument, NULL, CHANGES_NOTHING},
    {"interactive", no_argument, NULL, CHANGES_NOTHING},
    {"mem-bind", required_argument, NULL, CHANGES_NOTHING},
    {"mincpus", required_argument, NULL, CHANGES_NOTHING},
    {"msg-timeout", required_argument, NULL, CHANGES_NOTHING},
    {"network", required_argument, NULL, CHANGES_NOTHING},
    {"nice", optional_argument, NULL, CHANGES_NOTHING},
    {"no-allocate", no_argument, NULL, CHANGES_NOTHING},
    {"no-kill", optional_argument, NULL, CHANGES_NOTHING},
    {"ntasks-per-core", required_argument, NULL, CHANGES_NOTHING},
    {"ntasks-per-socket", required_argument, NULL, CHANGES_NOTHING},
    {"oversubscribe", no_argument, NULL, CHANGES_NOTHING},
    {"partition", required_argument, NULL, CHANGES_NOTHING},
    {"preserve-env", no_argument, NULL, CHANGES_NOTHING},
    {"priority", required_argument, NULL, CHANGES_NOTHING},
    {"profile", required_argument, NULL, CHANGES_NOTHING},
    {"propagate", optional_argument, NULL, CHANGES_NOTHING},
    {"qos", required_argument, NULL, CHANGES_NOTHING},
    {"reservation", required_argument, NULL, CHANGES_NOTHING},
    {"send-libs", optional_argument, NULL, CHANGES_NOTHING},
    {"share", no_argument, NULL, CHANGES_NOTHING},
    {"signal", required_argument, NULL, CHANGES_NOTHING},
    {"slurmd-debug", required_argument, NULL, CHANGES_NOTHING},
    {"sockets-per-node", required_argument, NULL, CHANGES_NOTHING},
    {"spread-job", no_argument, NULL, CHANGES_NOTHING},
    {"switches", required_argument, NULL, CHANGES_NOTHING},
    {"thread-spec", required_argument, NULL, CHANGES_NOTHING},
    {"threads", required_argument, NULL, CHANGES_NOTHING},
    {"threads-per-core", required_argument, NULL, CHANGES_NOTHING},
    {"time-min", required_argument, NULL, CHANGES_NOTHING},
    {"tmp", required_argument, NULL, CHANGES_NOTHING},
    {"use-min-nodes", no_argument, NULL, CHANGES_NOTHING},
    {"wckey", required_argument, NULL, CHANGES_NOTHING},
};

enum { KNOWN_COUNT = sizeof known_options / sizeof *known_options };

/* -A -B -C -k -p -q -s -S -T change nothing; the others as above. */
static const char short_options[] = "+:A:B:c:C:D:e:F:G:hHi:I::J:kK::lL:m:M:n:N:o:Op:q:Qr:sS:t:T:uvVw:W:x:XZ";

#endif
