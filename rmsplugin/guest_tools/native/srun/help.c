/* srun --help. */

#include "options.h"

#include <stdio.h>

static const char help[] =
    "Usage: srun [OPTIONS...] COMMAND [ARGUMENTS...] [ : [OPTIONS...] COMMAND [ARGUMENTS...] ]...\n"
    "\n"
    "Start tasks of COMMAND across the VMs of this vjob; several commands, with `:` between them, each in VMs of its own.\n"
    "\n"
    "  -n, --ntasks=N            number of tasks (default: those of the job)\n"
    "  -N, --nodes=N             number of VMs (default: those of the job)\n"
    "      --ntasks-per-node=N   number of tasks in each VM\n"
    "  -c, --cpus-per-task=N     number of CPUs for each task\n"
    "  -w, --nodelist=VMS        VMs to run in;  -x, --exclude=VMS  not to run in\n"
    "  -r, --relative=N          run in VM number N and those after it\n"
    "  -m, --distribution=TYPE   block, cyclic, plane=SIZE, arbitrary (with -w); ,pack or ,nopack\n"
    "  -O, --overcommit          more tasks than CPUs\n"
    "      --overlap             do not wait for CPUs that other steps have\n"
    "  -I, --immediate           fail rather than wait for CPUs\n"
    "  -D, --chdir=PATH          directory of the tasks\n"
    "      --export=NAMES        variables for the tasks: ALL, NONE, NAME, NAME=VALUE\n"
    "  -i, --input=FILE          -o, --output=FILE  -e, --error=FILE: a file (%A %a %J %j %N %n %s %t %u %x),\n"
    "                            all, none, or the number of a task\n"
    "      --open-mode=MODE      append or truncate\n"
    "  -l, --label               put the number of the task before each line\n"
    "  -u, --unbuffered          pass output on as it comes, not line by line\n"
    "  -K, --kill-on-bad-exit    end the step when a task fails\n"
    "  -W, --wait=SECONDS        end the step so long after the first task's end\n"
    "  -t, --time=TIME           time limit of the step\n"
    "      --task-prolog=PATH    run before each task; what it prints as `export NAME=VALUE`, `unset NAME` changes\n"
    "                            the task's environment, `print TEXT` goes to the task's output\n"
    "      --task-epilog=PATH    run after each task, for 5 seconds at most\n"
    "      --bcast[=PATH]        copy COMMAND to all VMs of the job, and run it there\n"
    "      --multi-prog          COMMAND is a file of task numbers and their commands\n"
    "  -J, --job-name=NAME       told to the tasks as SLURM_JOB_NAME\n"
    "      --mem=SIZE            refused if the VM has less\n"
    "      --mpi=TYPE            none; others are refused: use mpirun --hostfile $RMSPLUGIN_HOSTFILE\n"
    "  -E, --preserve-env        SLURM_NTASKS and SLURM_NNODES of the tasks stay what they are\n"
    "  -X, --disable-status      do not show the status at Ctrl-C;  --quit-on-interrupt: end at the first one\n"
    "  -v, --verbose   -Q, --quiet   -V, --version   -h, --help\n"
    "\n"
    "Other options of Slurm's srun are accepted where they change nothing here (--exact, --exclusive, --cpu-bind,\n"
    "--partition, ...) and refused with a sentence where they cannot be obeyed.\n";

void options_help(void)
{
    fputs(help, stdout);
}
