#define _GNU_SOURCE

#include "options.h"

#include "messages.h"
#include "options_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: srun [OPTIONS...] COMMAND [ARGUMENTS...]\n"
    "\n"
    "Start tasks of COMMAND across the VMs of this vjob.\n"
    "\n"
    "  -n, --ntasks=N            number of tasks (default: those of the job)\n"
    "  -N, --nodes=N             number of VMs (default: those of the job)\n"
    "      --ntasks-per-node=N   number of tasks in each VM\n"
    "  -c, --cpus-per-task=N     number of CPUs for each task\n"
    "  -w, --nodelist=VMS        VMs to run in;  -x, --exclude=VMS  not to run in\n"
    "  -r, --relative=N          run in VM number N and those after it\n"
    "  -m, --distribution=TYPE   block or cyclic\n"
    "  -O, --overcommit          more tasks than CPUs\n"
    "      --overlap             do not wait for CPUs that other steps have\n"
    "  -I, --immediate           fail rather than wait for CPUs\n"
    "  -D, --chdir=PATH          directory of the tasks\n"
    "      --export=NAMES        variables for the tasks: ALL, NONE, NAME, NAME=VALUE\n"
    "  -i, --input=FILE          -o, --output=FILE  -e, --error=FILE: a file (with %j %J %s %t %n %N %u %x),\n"
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
    "  -X, --disable-status      do not show the status at Ctrl-C;  --quit-on-interrupt: end at the first one\n"
    "  -v, --verbose   -Q, --quiet   -V, --version   -h, --help\n"
    "\n"
    "Other options of Slurm's srun are accepted where they change nothing here (--exact, --exclusive, --cpu-bind,\n"
    "--partition, ...) and refused with a sentence where they cannot be obeyed.\n";

static _Noreturn void bad_value(const char *value, const char *option)
{
    error_exit(1, "Invalid numeric value \"%s\" for %s.", value, option);
}

static uint32_t number(const char *value, const char *option, uint32_t least)
{
    char *end;
    unsigned long got = strtoul(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end != 0 || got < least || got > 1000000)
        bad_value(value, option);
    return (uint32_t)got;
}

/* -N 2 or 1-2: the greater one, as far as there are tasks. */
static uint32_t node_count(const char *value)
{
    const char *dash = strchr(value, '-');
    if (dash == NULL)
        return number(value, "--nodes", 1);
    char *first = strndup(value, (size_t)(dash - value));
    uint32_t least = first != NULL ? number(first, "--nodes", 1) : 1;
    free(first);
    uint32_t most = number(dash + 1, "--nodes", 1);
    if (most < least)
        bad_value(value, "--nodes");
    return most;
}

/* Slurm's forms of a time, in seconds: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. */
static uint32_t time_of(const char *value)
{
    unsigned days = 0, parts[3] = {0, 0, 0};
    int used = 0, end = 0;
    const char *rest = value;
    bool with_days = sscanf(value, "%u-%n", &days, &end) == 1 && end > 0;
    if (with_days)
        rest += end;
    end = 0;
    used = sscanf(rest, "%u%n:%u%n:%u%n", &parts[0], &end, &parts[1], &end, &parts[2], &end);
    if (strcasecmp(value, "INFINITE") == 0 || strcasecmp(value, "UNLIMITED") == 0)
        return 0;
    if (used < 1 || rest[end] != 0 || days > 10000 || parts[0] > 1000000 || parts[1] > 1000000 || parts[2] > 1000000)
        error_exit(1, "Invalid --time specification");
    if (with_days)
        return days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
    if (used == 3)
        return parts[0] * 3600 + parts[1] * 60 + parts[2];
    return parts[0] * 60 + parts[1];
}

/* A size in MiB. */
static uint64_t size_of(const char *value, const char *option)
{
    char *end;
    unsigned long long size = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || (*end != 0 && end[1] != 0 && strcasecmp(end + 1, "B") != 0) || size >> 40)
        error_exit(1, "Invalid %s specification", option);
    switch (toupper((unsigned char)*end)) {
    case 'K': return (size + 1023) / 1024;
    case 0:
    case 'M': return size;
    case 'G': return size << 10;
    case 'T': return size << 20;
    default: error_exit(1, "Invalid %s specification", option);
    }
}

static void check_memory(const struct vjob *vjob, uint64_t wanted_mib)
{
    if (wanted_mib > vjob->memory_mib)
        error_exit(1, "Unable to create step for job %u: Memory required by task is not available", vjob->job_id);
}

static void check_mpi(const char *type)
{
    if (strcmp(type, "list") == 0) {
        puts("MPI plugin types are...\n\tnone");
        exit(0);
    }
    if (strcmp(type, "none") == 0)
        return;
    error_exit(1,
               "--mpi=%s is not possible inside a vjob: there is no process manager of this type. What works: "
               "mpirun --hostfile $RMSPLUGIN_HOSTFILE (Open MPI), mpirun -f $RMSPLUGIN_HOSTFILE (MPICH)",
               type);
}

static uint32_t distribution_of(const char *value)
{
    size_t size = strcspn(value, ":,");
    if (strncasecmp(value, "cyclic", size) == 0 && size == 6)
        return CYCLIC;
    if ((strncasecmp(value, "block", size) == 0 && size == 5) || *value == '*' ||
        (strncasecmp(value, "pack", size) == 0 && size == 4) || (strncasecmp(value, "nopack", size) == 0 && size == 6))
        return BLOCK;
    error_exit(1, "--distribution=%s is not possible inside a vjob: block or cyclic", value);
}

struct lists {
    const char *wanted, *file, *excluded;
    uint32_t relative;
    bool nodes_given; /* as an option */
};

static void check_job(const struct vjob *vjob, const char *value)
{
    if (number(value, "--jobid", 1) == vjob->job_id)
        return;
    error_exit(1, "Unable to confirm allocation for job %s: inside a vjob, steps are of its own job, %u", value,
               vjob->job_id);
}

static _Noreturn void refuse_option(int which)
{
    error_exit(1, "--%s is not possible inside a vjob: %s", refused_options[which].name, refused_options[which].why);
}

static void obey(struct options *options, struct lists *lists, const struct vjob *vjob, int code, const char *value)
{
    struct request *request = &options->request;
    switch (code) {
    case 'n': request->ntasks = number(value, "--ntasks", 1); break;
    case 'N':
        request->nodes = node_count(value);
        lists->nodes_given = true;
        break;
    case PER_NODE: request->per_node = number(value, "--ntasks-per-node", 1); break;
    case 'c':
        request->cpus_per_task = number(value, "--cpus-per-task", 1);
        options->cpus_given = true;
        break;
    case 'm': request->distribution = distribution_of(value); break;
    case 'O': request->overcommit = 1; break;
    case OVERLAP: request->overlap = 1; break;
    case 'I': request->immediate = 1; break;
    case 'w': lists->wanted = value; break;
    case 'F': lists->file = value; break;
    case 'x': lists->excluded = value; break;
    case 'r': lists->relative = number(value, "--relative", 0); break;
    case BCAST:
        options->bcast = true;
        options->bcast_to = value;
        break;
    case 'D': options->directory = value; break;
    case 'i': options->files[0] = value; break;
    case 'o': options->files[1] = value; break;
    case 'e': options->files[2] = value; break;
    case 'J':
        options->job_name = value;
        options->job_name_given = true;
        break;
    case EXPORT: options->exported = value; break;
    case TASK_PROLOG: options->task_prolog = value; break;
    case TASK_EPILOG: options->task_epilog = value; break;
    case 'l': options->label = true; break;
    case 'u': options->unbuffered = true; break;
    case 'v': options->verbose++; break;
    case 'Q': options->quiet = true; break;
    case 'K':
    case KILL_ON_BAD_EXIT: options->kill_on_bad_exit = value == NULL || number(value, "--kill-on-bad-exit", 0); break;
    case 'W': options->wait_s = number(value, "--wait", 0); break;
    case 't': options->limit_s = time_of(value); break;
    case 'X': options->no_abort_status = true; break;
    case QUIT_ON_INTERRUPT: options->quit_on_interrupt = true; break;
    case MULTI_PROG: options->multi_prog = true; break;
    case OPEN_MODE: options->append = *value == 'a' || *value == 'A'; break;
    case MEMORY: check_memory(vjob, size_of(value, "--mem")); break;
    case MEMORY_PER_CPU: check_memory(vjob, size_of(value, "--mem-per-cpu")); break;
    case MPI: check_mpi(value); break;
    case JOB_ID: check_job(vjob, value); break;
    case 'G': error_exit(1, "--gpus is not possible inside a vjob: VMs have no GPUs");
    case 'L': error_exit(1, "--licenses is not possible inside a vjob: ask for licences at submission");
    case 'M': error_exit(1, "--clusters is not possible inside a vjob: the step runs in this vjob");
    case 'V':
        puts("slurm 22.05 (srun of a vjob)");
        exit(0);
    case 'h':
    case HELP: fputs(help, stdout); exit(0);
    default: break;
    }
}

/* Input variables of Slurm's srun; options on the command line come after them. */
static void read_environment(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    static const struct {
        const char *name;
        int code;
    } variables[] = {
        {"SLURM_NPROCS", 'n'},       {"SLURM_NTASKS", 'n'},          {"SLURM_NNODES", 'N'},
        {"SLURM_JOB_NUM_NODES", 'N'}, {"SLURM_NTASKS_PER_NODE", PER_NODE}, {"SRUN_CPUS_PER_TASK", 'c'},
        {"SLURM_DISTRIBUTION", 'm'}, {"SLURM_STDINMODE", 'i'},       {"SLURM_STDOUTMODE", 'o'},
        {"SLURM_STDERRMODE", 'e'},   {"SRUN_INPUT", 'i'},            {"SRUN_OUTPUT", 'o'},
        {"SRUN_ERROR", 'e'},         {"SLURM_EXPORT_ENV", EXPORT},   {"SRUN_EXPORT_ENV", EXPORT},
        {"SLURM_WAIT", 'W'},         {"SLURM_TIMELIMIT", 't'},       {"SLURM_WORKING_DIR", 'D'},
        {"SLURM_OPEN_MODE", OPEN_MODE}, {"SLURM_MPI_TYPE", MPI},     {"SLURM_KILL_BAD_EXIT", KILL_ON_BAD_EXIT},
        {"SLURM_TASK_PROLOG", TASK_PROLOG}, {"SLURM_TASK_EPILOG", TASK_EPILOG},
    };
    static const struct {
        const char *name;
        int code;
    } switches[] = {
        {"SLURM_LABELIO", 'l'}, {"SLURM_UNBUFFEREDIO", 'u'}, {"SLURM_OVERCOMMIT", 'O'},
        {"SLURM_OVERLAP", OVERLAP}, {"SLURM_IMMEDIATE", 'I'}, {"SLURM_DISABLE_STATUS", 'X'},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i].name);
        if (value != NULL && *value != 0)
            obey(options, lists, vjob, variables[i].code, value);
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const char *value = getenv(switches[i].name);
        if (value != NULL && strcmp(value, "0") != 0 && strcasecmp(value, "no") != 0)
            obey(options, lists, vjob, switches[i].code, NULL);
    }
    lists->nodes_given = false;
    options->cpus_given = false;
}

static void read_arguments(struct options *options, struct lists *lists, const struct vjob *vjob, int argc,
                           char **argv)
{
    struct option all[KNOWN_COUNT + REFUSED_COUNT + 1] = {0};
    memcpy(all, known_options, sizeof known_options);
    for (int i = 0; i < REFUSED_COUNT; i++)
        all[KNOWN_COUNT + i] =
            (struct option){refused_options[i].name, refused_options[i].argument, NULL, REFUSED_OPTION + i};
    opterr = 0;
    for (;;) {
        int before = optind > 0 ? optind : 1;
        int code = getopt_long(argc, argv, short_options, all, NULL);
        if (code < 0)
            break;
        if (code == '?' || code == ':') {
            const char *word = argv[before];
            if (code == ':')
                fprintf(stderr, "srun: option '%s' requires an argument\n", word);
            else if (strncmp(word, "--", 2) == 0)
                fprintf(stderr, "srun: unrecognized option '%.*s'\n", (int)strcspn(word, "="), word);
            else
                fprintf(stderr, "srun: invalid option -- '%c'\n", optopt);
            fputs("Try \"srun --help\" for more information\n", stderr);
            exit(255);
        }
        if (code >= REFUSED_OPTION)
            refuse_option(code - REFUSED_OPTION);
        obey(options, lists, vjob, code, optarg);
    }
    options->command = argv + optind;
    options->words = argc - optind;
}

static int parse_vms(const struct vjob *vjob, const char *text, uint32_t *vms)
{
    int count = parse_host_list(vjob, text, vms);
    if (count < 0)
        error_exit(1, "Unable to create step for job %u: Requested node configuration is not available",
                   vjob->job_id);
    return count;
}

/* The names in a file, or in a list with a slash in it, which Slurm takes for a file's name. */
static char *names_in(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        error_exit(1, "Could not open node list file %s", path);
    struct buffer names = {0};
    for (int c; (c = getc(file)) != EOF && buffer_size(&names) < 1 << 20;) {
        char letter = isspace(c) ? ',' : (char)c;
        buffer_append(&names, &letter, 1);
    }
    buffer_append(&names, "", 1);
    fclose(file);
    return names.data;
}

static void choose_vms(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    struct request *request = &options->request;
    bool *out = allocate(vjob->count, sizeof *out);
    uint32_t *listed = allocate(vjob->count, sizeof *listed);
    request->vms = allocate(vjob->count, sizeof *request->vms);
    if (lists->excluded != NULL) {
        int count = parse_vms(vjob, lists->excluded, listed);
        for (int i = 0; i < count; i++)
            out[listed[i]] = true;
    }
    if (lists->wanted != NULL && strchr(lists->wanted, '/') != NULL)
        lists->file = lists->wanted;
    const char *wanted = lists->file != NULL ? names_in(lists->file) : lists->wanted;
    if (wanted != NULL) {
        int count = parse_vms(vjob, wanted, listed);
        for (int i = 0; i < count; i++) {
            request->vms[request->vm_count++] = listed[i];
            out[listed[i]] = true;
        }
        request->must = request->vm_count;
    }
    for (uint32_t vm = lists->relative; vm < vjob->count; vm++)
        if (!out[vm])
            request->vms[request->vm_count++] = vm;
    free(out);
    free(listed);
}

/* How many tasks in how many VMs, from what was given: as Slurm's srun, with SLURM_NTASKS and SLURM_NNODES as if they
 * were given, too. */
static void count_tasks(struct options *options, const struct lists *lists, const struct vjob *vjob)
{
    struct request *request = &options->request;
    uint32_t all = (uint32_t)vjob->count;
    bool any_nodes = request->nodes == 0;
    if (request->ntasks == 0 && request->per_node > 0)
        request->ntasks = (any_nodes ? all : request->nodes) * request->per_node;
    else if (request->ntasks == 0)
        request->ntasks = lists->nodes_given ? request->nodes : vjob->ntasks;
    if (request->ntasks == 0 || request->ntasks > MAXIMUM_TASKS)
        error_exit(1, "Unable to create step for job %u: More processors requested than permitted", vjob->job_id);
    if (any_nodes) {
        request->nodes = request->per_node > 0 ? (request->ntasks + request->per_node - 1) / request->per_node : all;
        if (request->nodes > request->ntasks)
            request->nodes = request->ntasks;
    }
    if (request->nodes > request->ntasks) {
        if (!options->quiet)
            message("Warning: can't run %u processes on %u nodes, setting nnodes to %u", request->ntasks,
                    request->nodes, request->ntasks);
        request->nodes = request->ntasks;
    }
    if (request->nodes > all)
        error_exit(1, "Only allocated %u nodes asked for %u", all, request->nodes);
    if (request->per_node > 0 && request->per_node != (request->ntasks + request->nodes - 1) / request->nodes) {
        if (!options->quiet)
            message("Warning: can't honor --ntasks-per-node set to %u which doesn't match the requested tasks %u with "
                    "the number of requested nodes %u. Ignoring --ntasks-per-node.",
                    request->per_node, request->ntasks, request->nodes);
        request->per_node = 0;
    }
    if (request->must > request->nodes)
        request->must = request->nodes;
}

void options_read(struct options *options, const struct vjob *vjob, int argc, char **argv)
{
    struct lists lists = {0};
    memset(options, 0, sizeof *options);
    options->request.cpus_per_task = 1;
    options->job_name = getenv("SLURM_JOB_NAME");
    read_environment(options, &lists, vjob);
    read_arguments(options, &lists, vjob, argc, argv);
    if (options->verbose > 0 && options->quiet)
        error_exit(1, "don't specify both --verbose (-v) and --quiet (-Q)");
    if (options->words == 0) {
        fputs("srun: fatal: No command given to execute.\n", stderr);
        exit(1);
    }
    const char *command = strrchr(options->command[0], '/');
    snprintf(options->request.name, sizeof options->request.name, "%s",
             options->job_name_given ? options->job_name : command != NULL ? command + 1 : options->command[0]);
    choose_vms(options, &lists, vjob);
    count_tasks(options, &lists, vjob);
    if (options->exported != NULL && strcasecmp(options->exported, "ALL") == 0)
        options->exported = NULL;
}
