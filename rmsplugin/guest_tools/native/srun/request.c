/* The request for a step: it is sent to the hub, and its grant is waited for. */

#define _GNU_SOURCE

#include "client.h"

#include "messages.h"
#include "protocol/hub_connect.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_TRIES = 3 };

static int connect_from_other_vm(const struct vjob *vjob)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    pid_t process = fork();
    if (process == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(ends[1], 0);
        dup2(ends[1], 1);
        setsid(); /* the signal that ends srun must not end its connection before srun has said so */
        execl(VJOB_BIN "/ssh", "ssh", vjob->names[0], VJOB_BIN "/stepd connect", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    return process > 0 ? ends[0] : -1;
}

static bool ask(struct client *client)
{
    int fd = client->vjob.index == 0 ? hub_connect() : connect_from_other_vm(&client->vjob);
    if (fd < 0)
        return false;
    connection_open(&client->hub, fd, fd);
    struct buffer data = {0};
    components_request(client, &data);
    send_data(&client->hub, REQUEST, 0, 0, 0, buffer_data(&data), buffer_size(&data));
    buffer_free(&data);
    return true;
}

static void take_grant(struct client *client, const struct frame *frame)
{
    struct reader reader = reader_of(frame);
    client->step = frame->step;
    if (!layout_get(&reader, (uint32_t)client->vjob.count, &client->layout) || client->layout.vm_count == 0)
        error_exit(1, "Unable to create step for job %u: what was granted cannot be read", client->vjob.job_id);
    client->id = formatted("%u.%u", client->vjob.job_id, client->step);
    client->running_nodes = client->layout.vm_count;
    client->tasks = allocate(client->layout.ntasks, sizeof *client->tasks);
    client->nodes = allocate(client->layout.vm_count, sizeof *client->nodes);
    for (uint32_t i = 0; i < client->layout.vm_count; i++) {
        client->nodes[i].vm = client->layout.vms[i];
        client->nodes[i].tasks = allocate(client->layout.counts[i], sizeof(uint32_t));
    }
    components_granted(client);
    for (uint32_t task = 0; task < client->layout.ntasks; task++) {
        struct node *node = node_of_task(client, task);
        if (node->count == client->layout.counts[client->layout.node_of[task]])
            error_exit(1, "Unable to create step for job %u: what was granted is not consistent", client->vjob.job_id);
        node->tasks[node->count++] = task;
    }
}

static void stop_waiting(const struct client *client, int signals)
{
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) <= 0 || info.ssi_signo == SIGCONT)
        return;
    message("Cancelled pending job step with signal %u", info.ssi_signo);
    error_exit(1, "Unable to create step for job %u: Job/step already completing or completed", client->vjob.job_id);
}

/* Returns whether this frame was the grant. */
static bool take_answer(struct client *client, const struct frame *frame)
{
    bool quiet = client->options.quiet;
    struct reader reader = reader_of(frame);
    switch (frame->type) {
    case REFUSED: error_exit(1, "Unable to create step for job %u: %s", client->vjob.job_id, get_text(&reader));
    case WAITING:
        client->waited = true;
        if (!quiet)
            message("Job %u step creation temporarily disabled, retrying (Requested nodes are busy)",
                    client->vjob.job_id);
        return false;
    case GRANT:
        if (client->waited && !quiet)
            message("Step created for job %u", client->vjob.job_id);
        take_grant(client, frame);
        return true;
    default: return false;
    }
}

/* Returns whether the step was granted; false: the hub was just ending. */
static bool wait_for_grant(struct client *client, int signals)
{
    while (!client->hub.broken) {
        struct frame frame;
        connection_flush(&client->hub);
        struct pollfd polls[2] = {{client->hub.in, POLLIN, 0}, {signals, POLLIN, 0}};
        if (buffer_size(&client->hub.output) > 0)
            polls[0].events |= POLLOUT;
        poll(polls, 2, -1);
        stop_waiting(client, signals);
        if (polls[0].revents & ~POLLOUT)
            connection_fill(&client->hub);
        while (connection_next(&client->hub, &frame))
            if (take_answer(client, &frame))
                return true;
    }
    return false;
}

void step_create(struct client *client, int signals)
{
    for (int i = 0; i < CONNECT_TRIES; i++) {
        if (!ask(client))
            continue;
        if (wait_for_grant(client, signals))
            return;
        connection_close(&client->hub);
    }
    error_exit(1, "Unable to create step for job %u: stepd does not answer", client->vjob.job_id);
}
