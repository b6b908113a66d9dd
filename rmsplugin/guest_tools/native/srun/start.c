/* The start of a granted step: each VM gets the plan of its tasks. */

#define _GNU_SOURCE

#include "client.h"

#include "messages.h"
#include "programs_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *directory_of(const struct options *options)
{
    char *here = getcwd(NULL, 0), *wanted = (char *)options->directory;
    if (here == NULL)
        here = copied("/");
    if (wanted == NULL || *wanted == '/')
        return wanted != NULL ? wanted : here;
    return formatted("%s/%s", here, wanted);
}

static void common_plan(const struct client *client, const struct component *component, struct plan *plan)
{
    const struct options *options = &component->options;
    mode_t mask = umask(0);
    umask(mask);
    memset(plan, 0, sizeof *plan);
    plan->job_id = client->vjob.job_id;
    plan->step = client->step;
    plan->ntasks = client->layout.ntasks;
    plan->nodes = client->layout.vm_count;
    plan->first_node = component->first_node;
    plan->mask = mask;
    plan->unbuffered = options->unbuffered;
    plan->append = options->append;
    plan->user = getenv("USER") != NULL ? getenv("USER") : "";
    plan->task_prolog = options->task_prolog != NULL ? (char *)options->task_prolog : "";
    plan->task_epilog = options->task_epilog != NULL ? (char *)options->task_epilog : "";
    plan->directory = directory_of(options);
    for (int i = 0; i < LIMITS; i++) {
        struct rlimit limit;
        if (getrlimit(i, &limit) != 0)
            limit.rlim_cur = RLIM_INFINITY;
        plan->limits[i][0] = (uint32_t)((uint64_t)limit.rlim_cur >> 32);
        plan->limits[i][1] = (uint32_t)limit.rlim_cur;
    }
    memcpy(plan->streams, component->streams, sizeof plan->streams);
}

static void say_launching(const struct client *client, const struct node *node)
{
    char *tasks = ranges(node->tasks, node->count), *id = component_id(client, node->component);
    bool several = node->count > 1; /* Slurm brackets what is more than one number */
    message("launching StepId=%s on host %s, %u tasks: %s%s%s", id, client->vjob.names[node->vm], node->count,
            several ? "[" : "", tasks, several ? "]" : "");
    free(tasks);
    free(id);
}

static void start_node(struct client *client, struct plan *plan, uint32_t number, struct command *commands)
{
    struct node *node = &client->nodes[number];
    plan->node = number;
    plan->name = client->vjob.names[node->vm];
    plan->cpus = client->vjob.all_cpus[node->vm] == client->vjob.all_cpus[0] ? 0 : client->vjob.all_cpus[node->vm];
    plan->local = node->count;
    plan->tasks = node->tasks;
    plan->command_of = allocate(node->count, sizeof *plan->command_of);
    if (node->component->options.multi_prog) {
        plan->command_count = node->count;
        plan->commands = allocate(node->count, sizeof *plan->commands);
        for (uint32_t i = 0; i < node->count; i++) {
            plan->commands[i] = commands[node->tasks[i]];
            plan->command_of[i] = i;
        }
    } else {
        plan->command_count = 1;
        plan->commands = commands;
    }
    struct buffer data = {0};
    plan_put(&data, plan);
    send_data(&client->hub, START, (uint16_t)node->vm, client->step, 0, buffer_data(&data), buffer_size(&data));
    buffer_free(&data);
    free(plan->command_of);
    if (client->options.verbose > 0)
        say_launching(client, node);
}

static void start_component(struct client *client, struct component *component)
{
    struct plan plan;
    const struct options *options = &component->options;
    struct command single = {(uint32_t)options->words, options->command};
    struct command *commands = &single;
    if (options->multi_prog)
        commands = programs_commands(&options->programs, component->ntasks, single.words + 1, options->words - 1);
    common_plan(client, component, &plan);
    plan.environment = task_environment(client, component);
    for (uint32_t i = 0; i < component->nodes; i++)
        start_node(client, &plan, component->first_node + i, commands);
}

/* As Slurm says about the job if `-v` asks for more words. */
static void say_nodes(const struct client *client)
{
    uint32_t all = (uint32_t)client->vjob.count, *vms = allocate(all, sizeof *vms);
    for (uint32_t i = 0; i < all; i++)
        vms[i] = i;
    char *names = host_list(&client->vjob, vms, all), *counts = counts_list(client->vjob.all_cpus, all);
    message("jobid %u: nodes(%u):`%s', cpu counts: %s", client->vjob.job_id, all, names, counts);
    free(vms);
    free(names);
    free(counts);
}

void step_start(struct client *client)
{
    if (client->options.verbose > 0)
        say_nodes(client);
    for (uint32_t i = 0; i < client->component_count; i++)
        start_component(client, &client->components[i]);
    client->started_ms = client_now_ms();
}
