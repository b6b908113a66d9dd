/* What srun hears of the hub and of the steps in other VMs. */

#include "../../rmsplugin/guest_tools/native/srun/client.c"
#include "../../rmsplugin/guest_tools/native/srun/request.c"

#include "targets.h"

static char *names[] = {"vjob12-0", "vjob12-1", NULL};
static uint32_t all_cpus[] = {2, 1};

void parse_answers(const char *data, size_t size)
{
    struct client client = {.vjob = {.job_id = 12, .cpus = 2, .all_cpus = all_cpus, .count = 2, .names = names,
                                     .kill_wait = 30}, .id = "12.0"};
    char *words[] = {"srun", "-l", "-n", "2", "-o", "/dev/null", "true", ":", "-n", "1", "true", NULL};
    struct connection from = {.in = -1, .out = -1};
    struct frame frame;
    client.hub = (struct connection){.in = -1, .out = -1};
    components_read(&client, 11, words);
    buffer_append(&from.input, data, size);
    if (!connection_next(&from, &frame))
        return;
    take_grant(&client, &frame);
    streams_choose(&client);
    while (connection_next(&from, &frame))
        take(&client, &frame);
    exits_status(&client);
}
