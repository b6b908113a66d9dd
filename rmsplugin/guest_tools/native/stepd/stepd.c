/* stepd: starts the tasks of srun. `hub` and `agent`: see there; `connect`: carries a connection to the hub from
 * another VM over its standard streams. */

#define _GNU_SOURCE

#include "base/names.h"
#include "protocol/hub_connect.h"
#include "protocol/wire.h"
#include "agent.h"
#include "hub.h"
#include "programs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void carry(int from, int to)
{
    static char data[CHUNK];
    for (;;) {
        ssize_t got = read(from, data, sizeof data);
        if (got < 0 && errno == EINTR)
            continue;
        for (ssize_t put = 0, part; put < got; put += part) {
            part = write(to, data + put, (size_t)(got - put));
            if (part < 0)
                return;
        }
        if (got <= 0)
            return;
    }
}

static int carry_connection(void)
{
    int hub = hub_connect();
    if (hub < 0)
        return 1;
    pid_t process = fork();
    if (process < 0)
        return 1;
    if (process == 0) {
        carry(STDIN_FILENO, hub);
        shutdown(hub, SHUT_RDWR);
        _exit(0);
    }
    carry(hub, STDOUT_FILENO);
    kill(process, SIGKILL);
    return 0;
}

int stepd_main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "hub") == 0)
        return hub_main();
    if (strcmp(verb, "agent") == 0)
        return agent_main();
    if (strcmp(verb, "connect") == 0)
        return carry_connection();
    fputs("usage: stepd hub | agent | connect\n", stderr);
    return 2;
}
