/* Components of a step: the parts that `srun a : b` has twice. */

#include "client.h"

#include "messages.h"

#include <stdlib.h>

static void check_room(const struct client *client)
{
    uint32_t taken = 0, all = (uint32_t)client->vjob.count;
    for (uint32_t i = 0; i < client->component_count; i++) {
        uint32_t nodes = client->components[i].options.request.nodes;
        if (nodes > all - taken)
            error_exit(1, "Allocation failure of %u nodes: job size of %u, already allocated %u nodes to previous components.",
                       nodes, all, taken);
        taken += nodes;
    }
}

void components_read(struct client *client, int argc, char **argv)
{
    struct options *options;
    client->component_count = options_read(&options, &client->vjob, argc, argv);
    client->components = allocate(client->component_count, sizeof *client->components);
    for (uint32_t i = 0; i < client->component_count; i++) {
        client->components[i].number = i;
        client->components[i].options = options[i];
    }
    client->options = options[0];
    free(options);
    check_room(client);
}

void components_request(const struct client *client, struct buffer *data)
{
    struct requests requests = {.count = client->component_count};
    requests.each = allocate(requests.count, sizeof *requests.each);
    for (uint32_t i = 0; i < requests.count; i++)
        requests.each[i] = client->components[i].options.request;
    requests_put(data, &requests);
    free(requests.each);
}

static _Noreturn void inconsistent(const struct client *client)
{
    error_exit(1, "Unable to create step for job %u: what was granted is not consistent", client->vjob.job_id);
}

void components_granted(struct client *client)
{
    const struct layout *layout = &client->layout;
    uint32_t task = 0, node = 0;
    for (uint32_t i = 0; i < client->component_count; i++) {
        struct component *component = &client->components[i];
        component->first_task = task;
        component->first_node = node;
        for (; node < layout->vm_count && layout->component[node] == i; node++) {
            component->ntasks += layout->counts[node];
            client->nodes[node].component = component;
        }
        component->nodes = node - component->first_node;
        task += component->ntasks;
        if (component->ntasks != component->options.request.ntasks)
            inconsistent(client);
    }
    if (node != layout->vm_count || task != layout->ntasks)
        inconsistent(client);
}

char *component_id(const struct client *client, const struct component *component)
{
    return client->component_count > 1 ? formatted("%s+%u", client->id, component->number) : copied(client->id);
}
