#include "askers.h"

#include "desk.h"

#include "base/processes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct asker {
    int process;
    char id[REQUEST_ID_BYTES];
};

static struct asker askers[MOST_ASKERS];
static nfds_t count;

/* Where a process cannot be watched (Linux before 5.3), its end is seen with the next part. */
void asker_watch(const char *id)
{
    char place[PATH_BYTES];
    int process = count < MOST_ASKERS ? process_open(asker_of(path_to(place, DESK, id, ".taken"))) : -1;
    if (process < 0)
        return;
    askers[count].process = process;
    snprintf(askers[count++].id, sizeof askers->id, "%s", id);
}

nfds_t askers_to_poll(struct pollfd some[MOST_ASKERS])
{
    for (nfds_t i = 0; i < count; i++)
        some[i] = (struct pollfd){.fd = askers[i].process, .events = POLLIN};
    return count;
}

/* A tool that has had its answer removes its request before it ends. */
static void tell_end(const char *id)
{
    char place[PATH_BYTES];
    if (exists(path_to(place, DESK, id, ".taken")))
        printf("cancel %s\n", id);
}

void askers_polled(const struct pollfd some[MOST_ASKERS])
{
    nfds_t left = 0;
    for (nfds_t i = 0; i < count; i++)
        if (some[i].revents) {
            close(askers[i].process);
            tell_end(askers[i].id);
        } else {
            askers[left++] = askers[i];
        }
    count = left;
}
