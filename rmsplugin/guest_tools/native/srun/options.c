#define _GNU_SOURCE

#include "options.h"

#include "messages.h"
#include "options_table.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_job(const struct vjob *vjob, const char *value)
{
    if (value_number(value, "--jobid", 1) == vjob->job_id)
        return;
    error_exit(1, "Unable to confirm allocation for job %s: inside a vjob, steps are of its own job, %u", value,
               vjob->job_id);
}

static _Noreturn void refuse_option(int which)
{
    error_exit(1, "--%s is not possible inside a vjob: %s", refused_options[which].name, refused_options[which].why);
}

static void check_resource(const char *option, const char *value, const char *what)
{
    if (!value_asks_for_none(value))
        error_exit(1, "--%s is not possible inside a vjob: VMs have no %s", option, what);
}

/* A program of srun's own, before or after the step. */
static void check_program(const char *option, const char *value, const char *when)
{
    if (strcasecmp(value, "none") != 0)
        error_exit(1, "--%s is not possible inside a vjob: run it in the script, %s srun", option, when);
}

/* Options about the number of tasks and their places. */
static bool obey_counts(struct options *options, struct lists *lists, int code, const char *value)
{
    struct request *request = &options->request;
    switch (code) {
    case 'n':
        request->ntasks = value_number(value, "--ntasks", 1);
        lists->ntasks_given = true;
        break;
    case 'N':
        request->nodes = value_nodes(value);
        lists->nodes_given = true;
        break;
    case PER_NODE: request->per_node = value_number(value, "--ntasks-per-node", 1); break;
    case 'c':
        request->cpus_per_task = value_number(value, "--cpus-per-task", 1);
        options->cpus_given = true;
        break;
    case 'm':
        if (!distribution_read(value, &options->distribution))
            exit(BAD_OPTION);
        break;
    case 'O': request->overcommit = 1; break;
    case OVERLAP: request->overlap = 1; break;
    case 'I': request->immediate = 1; break;
    case 'w': lists->wanted = value; break;
    case 'F': lists->file = value; break;
    case 'x': lists->excluded = value; break;
    case 'r':
        lists->relative = value_number(value, "--relative", 0);
        lists->relative_given = true;
        break;
    case EXACT: options->exact = true; break;
    case WHOLE: options->whole = true; break;
    case 'E': options->keep_counts = true; break;
    default: return false;
    }
    return true;
}

/* Requests for things that VMs lack, and options that only print a text. */
static bool obey_limits(const struct vjob *vjob, int code, const char *value)
{
    switch (code) {
    case MEMORY: value_memory(vjob, value_size(value, "--mem")); break;
    case MEMORY_PER_CPU: value_memory(vjob, value_size(value, "--mem-per-cpu")); break;
    case MPI: value_mpi(value); break;
    case JOB_ID: check_job(vjob, value); break;
    case GRES: check_resource("gres", value, "generic resources"); break;
    case 'G': check_resource("gpus", value, "GPUs"); break;
    case PORTS: check_resource("resv-ports", value != NULL ? value : "0", "reserved ports: all of them are the job's own"); break;
    case PROLOG: check_program("prolog", value, "before"); break;
    case EPILOG: check_program("epilog", value, "after"); break;
    case 'b': error_message("--begin is ignored because nodes are already allocated."); break;
    case 'M': error_exit(1, "--clusters is not possible inside a vjob: the step runs in this vjob");
    case 'V':
        printf("slurm %s (srun of a vjob)\n", vjob->slurm_version);
        exit(0);
    case 'h':
    case HELP:
        options_help();
        exit(0);
    default: return false;
    }
    return true;
}

static void obey(struct options *options, struct lists *lists, const struct vjob *vjob, int code, const char *value)
{
    if (obey_counts(options, lists, code, value) || obey_limits(vjob, code, value))
        return;
    switch (code) {
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
    case KILL_ON_BAD_EXIT:
        options->kill_on_bad_exit = value == NULL || value_number(value, "--kill-on-bad-exit", 0);
        break;
    case 'W': options->wait_s = value_number(value, "--wait", 0); break;
    case 't': options->request.limit_s = (value_time(value) + 59) / 60 * 60; break; /* Slurm's are minutes */
    case 'X': options->no_abort_status = true; break;
    case QUIT_ON_INTERRUPT: options->quit_on_interrupt = true; break;
    case MULTI_PROG: options->multi_prog = true; break;
    case OPEN_MODE:
        if (*value == 0 || strchr("aAtT", *value) == NULL)
            error_exit(BAD_OPTION, "Invalid --open-mode specification");
        options->append = *value == 'a' || *value == 'A';
        options->open_mode_given = true;
        break;
    default: break;
    }
}

/* Input variables of Slurm's srun; options on the command line override them. */
static void read_environment(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    static const struct {
        const char *name;
        int code;
    } variables[] = {
        {"SLURM_NPROCS", 'n'},       {"SLURM_NTASKS", 'n'},          {"SLURM_NNODES", 'N'},
        {"SLURM_JOB_NUM_NODES", 'N'}, {"SLURM_NTASKS_PER_NODE", PER_NODE}, {"SRUN_CPUS_PER_TASK", 'c'},
        {"SLURM_DISTRIBUTION", 'm'}, {"SLURM_GRES", GRES}, {"SLURM_GPUS", 'G'}, {"SLURM_PROLOG", PROLOG}, {"SLURM_EPILOG", EPILOG}, {"SLURM_RESV_PORTS", PORTS}, {"SLURM_STDINMODE", 'i'},       {"SLURM_STDOUTMODE", 'o'},
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
        bool of_job = variables[i].code == 'N' && lists->one_of_several;
        if (value != NULL && (*value != 0 || variables[i].code == 'm') && !of_job)
            obey(options, lists, vjob, variables[i].code, value);
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const char *value = getenv(switches[i].name);
        if (value != NULL && strcmp(value, "0") != 0 && strcasecmp(value, "no") != 0)
            obey(options, lists, vjob, switches[i].code, NULL);
    }
    lists->nodes_given = lists->ntasks_given = options->cpus_given = false;
}

static _Noreturn void bad_option(int code, const char *word)
{
    if (code == ':')
        fprintf(stderr, "srun: option '%s' requires an argument\n", word);
    else if (strncmp(word, "--", 2) == 0)
        fprintf(stderr, "srun: unrecognized option '%.*s'\n", (int)strcspn(word, "="), word);
    else
        fprintf(stderr, "srun: invalid option -- '%c'\n", optopt);
    fputs("Try \"srun --help\" for more information\n", stderr);
    exit(BAD_OPTION);
}

/* Returns the number of words up to the command. */
static int read_arguments(struct options *options, struct lists *lists, const struct vjob *vjob, int argc, char **argv)
{
    struct option all[KNOWN_COUNT + REFUSED_COUNT + 1] = {0};
    memcpy(all, known_options, sizeof known_options);
    for (int i = 0; i < REFUSED_COUNT; i++)
        all[KNOWN_COUNT + i] =
            (struct option){refused_options[i].name, refused_options[i].argument, NULL, REFUSED_OPTION + i};
    opterr = optind = 0;
    for (;;) {
        int before = optind > 0 ? optind : 1;
        int code = getopt_long(argc, argv, short_options, all, NULL);
        if (code < 0)
            break;
        if (code == '?' || code == ':')
            bad_option(code, argv[before]);
        if (code >= REFUSED_OPTION)
            refuse_option(code - REFUSED_OPTION);
        obey(options, lists, vjob, code, optarg);
    }
    return optind;
}

/* A component has its own tasks and VMs; it takes the rest from the one before it, as in Slurm. */
static void begin(struct options *options, const struct options *before)
{
    if (before != NULL)
        *options = *before;
    else
        *options = (struct options){.job_name = getenv("SLURM_JOB_NAME")};
    memset(&options->request, 0, sizeof options->request);
    memset(&options->distribution, 0, sizeof options->distribution);
    memset(&options->programs, 0, sizeof options->programs);
    options->request.cpus_per_task = 1;
    options->cpus_given = options->bcast = options->whole = options->exact = false;
    options->bcast_to = NULL;
}

/* The words of a command, which end at a `:`, or with the arguments. */
static void take_command(struct options *options, char **words)
{
    while (words[options->words] != NULL && strcmp(words[options->words], ":") != 0)
        options->words++;
    options->command = allocate((size_t)options->words + 1, sizeof *options->command);
    memcpy(options->command, words, (size_t)options->words * sizeof *words);
}

static void check(const struct options *options)
{
    if (options->verbose > 0 && options->quiet)
        error_exit(1, "don't specify both --verbose (-v) and --quiet (-Q)");
    if (options->exact && options->whole)
        error_exit(1, "--exact and --whole are mutually exclusive.");
}

static void fatal(const char *text)
{
    fprintf(stderr, "srun: fatal: %s\n", text);
    exit(1);
}

/* A component without a command runs that of the next one. */
static void share_commands(struct options *all, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        if (all[i].words == 0 && i + 1 == count)
            fatal("No command given to execute.");
        if (all[i].words == 0) {
            all[i].command = all[i + 1].command;
            all[i].words = all[i + 1].words;
        }
        if (count > 1 && all[i].multi_prog)
            fatal("--multi-prog option not supported with multiple het groups");
    }
}

static void finish(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    const char *command = strrchr(options->command[0], '/');
    snprintf(options->request.name, sizeof options->request.name, "%s",
             options->job_name_given ? options->job_name : command != NULL ? command + 1 : options->command[0]);
    if (options->multi_prog)
        options->programs = programs_read(options->command[0]);
    options_count(options, lists, vjob);
    if (lists->one_of_several && !options->open_mode_given)
        options->append = true; /* as Slurm: several may write to one file */
    if (options->exported != NULL && strcasecmp(options->exported, "ALL") == 0)
        options->exported = NULL;
}

static bool has_colon(char **words)
{
    while (*words != NULL && strcmp(*words, ":") != 0)
        words++;
    return *words != NULL;
}

uint32_t options_read(struct options **all, const struct vjob *vjob, int argc, char **argv)
{
    struct lists *lists = NULL;
    uint32_t count = 0;
    bool more = true, several = false;
    *all = NULL;
    while (more) {
        *all = resized(*all, count + 1, sizeof **all);
        lists = resized(lists, count + 1, sizeof *lists);
        struct options *options = &(*all)[count];
        begin(options, count > 0 ? options - 1 : NULL);
        options->words = 0;
        several = several || has_colon(argv);
        lists[count] = (struct lists){.one_of_several = several};
        read_environment(options, &lists[count], vjob);
        int used = read_arguments(options, &lists[count++], vjob, argc, argv);
        take_command(options, argv + used);
        check(options);
        used += options->words;
        more = argv[used] != NULL && count < MAXIMUM_COMPONENTS;
        argc -= used;
        argv += used;
    }
    share_commands(*all, count);
    for (uint32_t i = 0; i < count; i++)
        finish(&(*all)[i], &lists[i], vjob);
    free(lists);
    return count;
}
