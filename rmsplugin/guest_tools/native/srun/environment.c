#define _GNU_SOURCE

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static void add(struct command *environment, char *word)
{
    environment->words = resized(environment->words, (size_t)environment->count + 2, sizeof *environment->words);
    environment->words[environment->count++] = word;
    environment->words[environment->count] = NULL;
}

static void set_word(struct command *environment, char *word)
{
    size_t name = strcspn(word, "=") + 1;
    for (uint32_t i = 0; i < environment->count; i++)
        if (strncmp(environment->words[i], word, name) == 0) {
            environment->words[i] = word;
            return;
        }
    add(environment, word);
}

static void set(struct command *environment, const char *name, const char *value)
{
    set_word(environment, formatted("%s=%s", name, value));
}

static void set_number(struct command *environment, const char *name, uint32_t value)
{
    set_word(environment, formatted("%s=%u", name, value));
}

/* --export: ALL, NONE, NAME, NAME=VALUE. Without ALL only Slurm's variables and the named ones are passed. */
static void export_named(struct command *environment, const char *exported)
{
    char *list = copied(exported), *rest = list;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (strcasecmp(word, "ALL") == 0 || strcasecmp(word, "NONE") == 0 || strcasecmp(word, "NIL") == 0 || *word == 0)
            continue;
        const char *value = getenv(word);
        if (strchr(word, '=') != NULL)
            set_word(environment, copied(word));
        else if (value != NULL)
            set(environment, word, value);
    }
    free(list);
}

static bool has_all(const char *exported)
{
    char *list = copied(exported), *rest = list;
    bool all = false;
    for (char *word; (word = strsep(&rest, ",")) != NULL;)
        all = all || strcasecmp(word, "ALL") == 0;
    free(list);
    return all;
}

static void set_address(struct command *environment, uint32_t vm)
{
    FILE *file = fopen(VJOB_ETC "/hosts", "re");
    char address[64];
    for (uint32_t i = 0; file != NULL && fscanf(file, "%63s %*s", address) == 1; i++)
        if (i == vm) {
            set(environment, "SLURM_LAUNCH_NODE_IPADDR", address);
            set(environment, "SLURM_SRUN_COMM_HOST", address);
        }
    if (file != NULL)
        fclose(file);
}

/* The step's nodes in the order of the job's nodes, with the number of tasks of each. */
static void set_nodes(struct command *environment, const struct client *client)
{
    const struct layout *layout = &client->layout;
    uint32_t *counts_of = allocate(client->vjob.count, sizeof *counts_of), nodes = 0;
    uint32_t *vms = allocate(layout->vm_count, sizeof *vms), *counts = allocate(layout->vm_count, sizeof *counts);
    for (uint32_t i = 0; i < layout->vm_count; i++)
        counts_of[layout->vms[i]] = layout->counts[i];
    for (uint32_t vm = 0; vm < client->vjob.count; vm++)
        if (counts_of[vm] > 0) {
            vms[nodes] = vm;
            counts[nodes++] = counts_of[vm];
        }
    char *names = host_list(&client->vjob, vms, nodes), *list = counts_list(counts, nodes);
    set(environment, "SLURM_STEP_NODELIST", names);
    set(environment, "SLURM_STEP_TASKS_PER_NODE", list);
    if (!client->options.keep_counts)
        set(environment, "SLURM_TASKS_PER_NODE", list);
    free(names);
    free(list);
    free(counts_of);
    free(vms);
    free(counts);
}

static void set_of_step(struct command *environment, const struct client *client, const struct component *component)
{
    const struct layout *layout = &client->layout;
    const struct {
        const char *name;
        uint32_t value;
        bool kept; /* with --preserve-env, if it is set */
    } numbers[] = {
        {"SLURM_STEP_ID", client->step, false},          {"SLURM_STEPID", client->step, false},
        {"SLURM_STEP_NUM_NODES", layout->vm_count, false}, {"SLURM_STEP_NUM_TASKS", layout->ntasks, false},
        {"SLURM_NTASKS", layout->ntasks, true},          {"SLURM_NPROCS", layout->ntasks, true},
        {"SLURM_NNODES", layout->vm_count, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!numbers[i].kept || !component->options.keep_counts)
            set_number(environment, numbers[i].name, numbers[i].value);
    set_nodes(environment, client);
    char *distribution = distribution_text(&component->options.distribution, component->ntasks, component->nodes);
    set(environment, "SLURM_DISTRIBUTION", distribution);
    if (component->options.request.distribution == PLANE)
        set_number(environment, "SLURM_DIST_PLANESIZE", component->options.request.plane);
    free(distribution);
}

static void set_of_srun(struct command *environment, const struct client *client, const struct options *options)
{
    mode_t mask = umask(0);
    umask(mask);
    set_word(environment, formatted("SLURM_UMASK=%04o", (unsigned)mask));
    set_word(environment, formatted("SLURM_PRIO_PROCESS=%d", getpriority(PRIO_PROCESS, 0)));
    set_word(environment, formatted("SRUN_DEBUG=%d", 3 + options->verbose - options->quiet));
    set_address(environment, client->vjob.index);
    if (options->cpus_given)
        set_number(environment, "SLURM_CPUS_PER_TASK", options->request.cpus_per_task);
    if (options->job_name_given)
        set(environment, "SLURM_JOB_NAME", options->job_name);
}

struct command task_environment(const struct client *client, const struct component *component)
{
    struct command environment = {0};
    const char *exported = component->options.exported;
    bool all = exported == NULL || has_all(exported);
    for (char **word = environ; *word != NULL; word++)
        if (all || strncmp(*word, "SLURM_", 6) == 0 || strncmp(*word, "SPANK_", 6) == 0)
            add(&environment, *word);
    if (exported != NULL)
        export_named(&environment, exported);
    set_of_step(&environment, client, component);
    set_of_srun(&environment, client, &component->options);
    return environment;
}
