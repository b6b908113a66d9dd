/* The end of a step that srun ends, and the words that are said about it. */

#define _GNU_SOURCE

#include "client.h"

#include "messages.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ABORT_S = 2 }; /* Slurm's srun waits for so long beyond KillWait */

int64_t client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

void client_to_all(struct client *client, uint8_t type, uint32_t word)
{
    for (uint32_t i = 0; i < client->layout.vm_count; i++)
        if (!client->nodes[i].done)
            send_data(&client->hub, type, (uint16_t)client->nodes[i].vm, client->step, word, NULL, 0);
}

static bool has_ended(const struct client *client, const struct component *component)
{
    for (uint32_t i = 0; i < component->nodes; i++)
        if (!client->nodes[component->first_node + i].done)
            return false;
    return true;
}

/* As slurmstepd says it, for each component that has tasks left. */
static void say_cancelled(const struct client *client, const char *reason)
{
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime(&now));
    for (uint32_t i = 0; i < client->component_count; i++) {
        const struct component *component = &client->components[i];
        if (client->component_count > 1 && has_ended(client, component))
            continue;
        const char *name = client->vjob.names[client->layout.vms[component->first_node]];
        char *id = component_id(client, component);
        dprintf(STDERR_FILENO, "slurmstepd-%s: error: *** STEP %s ON %s CANCELLED AT %s%s ***\n", name, id, name, when,
                reason);
        free(id);
    }
}

void client_end(struct client *client, uint32_t grace_s, const char *reason)
{
    if (!client->ending)
        say_cancelled(client, reason);
    client->ending = true;
    client_to_all(client, END, grace_s);
}

void client_say_aborted(struct client *client)
{
    if (!client->aborted)
        message("Job step aborted: Waiting up to %u seconds for job step to finish.",
                client->vjob.kill_wait + ABORT_S);
    client->aborted = true;
}

void client_say_terminating(const struct client *client)
{
    /* Slurm's srun named its plugin and its function here before release 23.02. */
    bool names_itself = client->vjob.slurm_release > 0 && client->vjob.slurm_release < 23;
    for (uint32_t i = 0; i < client->component_count; i++) {
        char *id = component_id(client, &client->components[i]);
        message("%sTerminating StepId=%s", names_itself ? "launch/slurm: _step_signal: " : "", id);
        free(id);
    }
}
