#define _GNU_SOURCE

#include "hub.h"

#include "base/names.h"
#include "protocol/hub_connect.h"
#include "protocol/layout.h"
#include "events.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HUB_LOCK VJOB_STATE "/stepd.lock"
#define HUB_STEPS VJOB_STATE "/steps" /* number of the next step */

enum { IDLE_MS = 600000, EARLY_S = 5 };

/* A VM, and the connection to its agent. */
struct vm {
    bool open;
    struct connection connection;
};

/* A step: from its request until its tasks have ended in all VMs. */
struct step {
    uint32_t number;
    bool granted, told_to_wait;
    bool has_client; /* its srun is connected */
    bool is_none;    /* its client waits for the end of all steps */
    struct connection client;
    struct requests requests;
    time_t granted_at; /* CLOCK_MONOTONIC */
    struct layout layout;
    bool *started, *done; /* of each node of the layout */
    uint64_t *early;      /* signals for a node that was not started yet: a bit for each */
    uint32_t left; /* nodes that are not done */
    int status;    /* of the step so far, as of waitpid */
};

static struct vjob vjob;
static struct vm *vms;
static uint32_t *used; /* CPUs of each VM */
static struct step **steps;
static size_t step_count;
static int listener = -1;
static bool ended; /* the script has ended: no step begins any more */

/* ---- VMs ---- */

static void become_agent(uint32_t vm, int socket)
{
    dup2(socket, 0);
    dup2(socket, 1);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    if (vm == vjob.index)
        execl(VJOB_BIN "/stepd", "stepd", "agent", (char *)NULL);
    else
        execl(VJOB_BIN "/ssh", "ssh", vjob.names[vm], VJOB_BIN "/stepd agent", (char *)NULL);
    _exit(1);
}

static bool open_vm(uint32_t index)
{
    int ends[2];
    if (vms[index].open)
        return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    pid_t process = fork();
    if (process == 0)
        become_agent(index, ends[1]);
    close(ends[1]);
    if (process < 0) {
        close(ends[0]);
        return false;
    }
    vms[index].open = true;
    connection_open(&vms[index].connection, ends[0], ends[0]);
    return true;
}

/* ---- steps ---- */

static int node_of_vm(const struct step *step, uint32_t vm)
{
    for (uint32_t node = 0; step->granted && node < step->layout.vm_count; node++)
        if (step->layout.vms[node] == vm)
            return (int)node;
    return -1;
}

static void tell(struct step *step, uint8_t type, const char *text)
{
    if (step->has_client)
        send_data(&step->client, type, 0, step->number, 0, text, strlen(text) + 1);
}

static uint32_t next_number(void)
{
    unsigned number = 0;
    FILE *file = fopen(HUB_STEPS, "re");
    if (file != NULL) {
        if (fscanf(file, "%u", &number) != 1)
            number = 0;
        fclose(file);
    }
    file = fopen(HUB_STEPS, "we");
    if (file != NULL) {
        fprintf(file, "%u\n", number + 1);
        fclose(file);
    }
    return number;
}

static void occupy(const struct step *step, uint32_t node, int sign)
{
    const struct request *request = &step->requests.each[step->layout.component[node]];
    uint32_t cpus = layout_cpus(request, step->layout.counts[node], vjob.all_cpus[step->layout.vms[node]]);
    used[step->layout.vms[node]] += sign > 0 ? cpus : -cpus;
}

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void grant(struct step *step)
{
    step->granted = true;
    step->left = step->layout.vm_count;
    step->done = allocate(step->left, sizeof *step->done);
    step->started = allocate(step->left, sizeof *step->started);
    step->early = allocate(step->left, sizeof *step->early);
    step->number = next_number();
    for (uint32_t node = 0; node < step->layout.vm_count; node++)
        occupy(step, node, 1);
    struct buffer data = {0};
    layout_put(&data, &step->layout);
    send_data(&step->client, GRANT, 0, step->number, 0, buffer_data(&data), buffer_size(&data));
    buffer_free(&data);
    const struct request *first = &step->requests.each[0];
    step->granted_at = now_s();
    events_began(step->number, step->layout.ntasks, first->limit_s, first->name);
}

static void try_grant(struct step *step)
{
    if (ended) {
        tell(step, REFUSED, "Job/step already completing or completed");
        return;
    }
    switch (layout_make(&step->requests, (uint32_t)vjob.count, vjob.all_cpus, used, &step->layout)) {
    case FITS: grant(step); break;
    case NEVER: tell(step, REFUSED, "More processors requested than permitted"); break;
    case BUSY:
        if (step->requests.each[0].immediate)
            tell(step, REFUSED, "Requested nodes are busy");
        else if (!step->told_to_wait)
            tell(step, WAITING, "");
        step->told_to_wait = true;
    }
}

static void grant_waiting(void)
{
    for (size_t i = 0; i < step_count; i++)
        if (steps[i]->told_to_wait && !steps[i]->granted && steps[i]->has_client && !steps[i]->requests.each[0].immediate)
            try_grant(steps[i]);
}

static void node_done(struct step *step, int node)
{
    if (node < 0 || step->done[node])
        return;
    step->done[node] = true;
    step->left--;
    occupy(step, (uint32_t)node, -1);
    if (step->left == 0)
        events_ended(step->number, step->status);
}

static void request_step(struct step *step, const struct frame *frame)
{
    struct reader reader = reader_of(frame);
    if (step->requests.count == 0 && requests_get(&reader, (uint32_t)vjob.count, &step->requests))
        try_grant(step);
    else
        step->client.broken = true;
}

/* Signals that came for a node before its tasks were started reach them at their start. */
static void send_early(struct step *step, int node, struct connection *vm)
{
    for (uint32_t number = 1; number < 64; number++)
        if (step->early[node] & (UINT64_C(1) << number))
            send_data(vm, SIGNAL, 0, step->number, number, NULL, 0);
    step->early[node] = 0;
}

static void to_vm(struct step *step, struct frame *frame)
{
    int node = node_of_vm(step, frame->vm);
    if (node < 0 || step->done[node])
        return;
    frame->step = step->number;
    if (!open_vm(frame->vm)) {
        send_data(&step->client, FAILED, frame->vm, step->number, 0, "no process can be made", 23);
        node_done(step, node);
        return;
    }
    step->started[node] = step->started[node] || frame->type == START;
    if (step->started[node])
        connection_send(&vms[frame->vm].connection, frame);
    if (frame->type == START)
        send_early(step, node, &vms[frame->vm].connection);
}

static void to_all(struct step *step, uint8_t type, uint32_t word)
{
    for (uint32_t node = 0; step->granted && node < step->layout.vm_count; node++) {
        struct vm *vm = &vms[step->layout.vms[node]];
        if (!step->done[node] && step->started[node])
            send_data(&vm->connection, type, 0, step->number, word, NULL, 0);
        else if (type == SIGNAL && !step->done[node] && word < 64)
            step->early[node] |= UINT64_C(1) << word;
        else if (type == ORPHANED)
            node_done(step, (int)node); /* nobody will start it any more */
    }
}

static struct step *step_of(uint32_t number)
{
    for (size_t i = 0; i < step_count; i++)
        if (steps[i]->granted && steps[i]->number == number)
            return steps[i];
    return NULL;
}

/* Slurm looks at limits only now and then, and after they have passed; the step may have begun a little after its shadow. */
static bool is_over(const struct step *step)
{
    uint32_t limit_s = step->requests.each[0].limit_s;
    return limit_s > 0 && now_s() - step->granted_at >= (time_t)limit_s - EARLY_S;
}

/* Slurm kills the tasks of a step that it has to end, and lets srun say so: this hub does both. */
static void signal_step(struct step *step, uint32_t number)
{
    if (step != NULL && number == SIGTERM && step->has_client && is_over(step)) {
        send_data(&step->client, CANCELLED, 0, step->number, SIGTERM, NULL, 0);
        return;
    }
    if (step != NULL && number == SIGKILL && step->has_client)
        send_data(&step->client, CANCELLED, 0, step->number, 0, NULL, 0);
    if (step != NULL)
        to_all(step, SIGNAL, number);
}

/* Slurm's signals to the steps of a job whose script has ended: SIGCONT, SIGTERM, and KillWait later SIGKILL. */
static void end_steps(struct step *asker)
{
    for (size_t i = 0; !ended && i < step_count; i++) {
        if (steps[i]->granted && steps[i]->has_client)
            send_data(&steps[i]->client, CANCELLED, 0, steps[i]->number, 0, NULL, 0);
        else if (steps[i]->told_to_wait)
            tell(steps[i], REFUSED, "Job/step already completing or completed");
    }
    ended = true;
    asker->is_none = true;
}

static void tell_end_of_steps(void)
{
    for (size_t i = 0; i < step_count; i++)
        if (steps[i]->left > 0)
            return;
    for (size_t i = 0; i < step_count; i++)
        steps[i]->client.broken = steps[i]->client.broken || steps[i]->is_none;
}

/* ---- reading ---- */

static void read_client(struct step *step)
{
    struct frame frame;
    connection_fill(&step->client);
    while (connection_next(&step->client, &frame)) {
        if (frame.type == REQUEST)
            request_step(step, &frame);
        else if (frame.type == SIGNAL_STEP)
            signal_step(step_of(frame.step), frame.task);
        else if (frame.type == END_STEPS)
            end_steps(step);
        else
            to_vm(step, &frame);
    }
}

static void read_vm(uint32_t index)
{
    struct frame frame;
    connection_fill(&vms[index].connection);
    while (connection_next(&vms[index].connection, &frame)) {
        struct step *step = step_of(frame.step);
        if (step == NULL)
            continue;
        frame.vm = (uint16_t)index;
        if (step->has_client)
            connection_send(&step->client, &frame);
        if (frame.type == EXITED || frame.type == FAILED)
            step->status = events_worse(step->status, &frame);
        if (frame.type == DONE || frame.type == FAILED)
            node_done(step, node_of_vm(step, index));
    }
}

/* ---- what ends ---- */

static void close_broken_vms(void)
{
    for (uint32_t index = 0; index < vjob.count; index++) {
        if (!vms[index].open || !vms[index].connection.broken)
            continue;
        for (size_t i = 0; i < step_count; i++) {
            int node = node_of_vm(steps[i], index);
            if (node < 0 || steps[i]->done[node])
                continue;
            if (steps[i]->has_client)
                send_data(&steps[i]->client, FAILED, (uint16_t)index, steps[i]->number, 0, "no connection", 14);
            node_done(steps[i], node);
        }
        connection_close(&vms[index].connection);
        vms[index].open = false;
    }
}

static void close_broken_clients(void)
{
    for (size_t i = 0; i < step_count; i++) {
        struct step *step = steps[i];
        if (!step->has_client || !step->client.broken)
            continue;
        step->has_client = false;
        connection_close(&step->client);
        to_all(step, ORPHANED, 0);
    }
}

static void forget_steps(void)
{
    for (size_t i = 0; i < step_count;) {
        struct step *step = steps[i];
        if (step->has_client || step->left > 0) {
            i++;
            continue;
        }
        requests_free(&step->requests);
        layout_free(&step->layout);
        free(step->done);
        free(step->started);
        free(step->early);
        free(step);
        /* In their order: the step that has waited longest is served first. */
        memmove(&steps[i], &steps[i + 1], (--step_count - i) * sizeof *steps);
    }
}

/* ---- the loop ---- */

static void accept_client(void)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != getuid()) {
        close(fd);
        return;
    }
    steps = resized(steps, step_count + 1, sizeof *steps);
    struct step *step = steps[step_count++] = allocate(1, sizeof *step);
    step->has_client = true;
    connection_open(&step->client, fd, fd);
}

static struct pollfd polled(const struct connection *connection, bool open)
{
    short events = (short)(POLLIN | (open && buffer_size(&connection->output) > 0 ? POLLOUT : 0));
    return (struct pollfd){open ? connection->in : -1, events, 0};
}

static bool turn(void)
{
    size_t clients = step_count;
    struct pollfd *polls = allocate(1 + vjob.count + clients, sizeof *polls);
    polls[0] = (struct pollfd){listener, POLLIN, 0};
    for (uint32_t i = 0; i < vjob.count; i++)
        polls[1 + i] = polled(&vms[i].connection, vms[i].open);
    for (size_t i = 0; i < clients; i++)
        polls[1 + vjob.count + i] = polled(&steps[i]->client, steps[i]->has_client);
    int ready = poll(polls, 1 + vjob.count + clients, step_count > 0 ? -1 : IDLE_MS);
    for (uint32_t i = 0; ready > 0 && i < vjob.count; i++)
        if (polls[1 + i].revents & ~POLLOUT)
            read_vm(i);
    for (size_t i = 0; ready > 0 && i < clients; i++)
        if (polls[1 + vjob.count + i].revents & ~POLLOUT)
            read_client(steps[i]);
    if (ready > 0 && polls[0].revents != 0)
        accept_client();
    free(polls);
    return ready != 0;
}

static void settle(void)
{
    close_broken_vms();
    tell_end_of_steps();
    close_broken_clients();
    grant_waiting();
    forget_steps();
    for (uint32_t i = 0; i < vjob.count; i++)
        if (vms[i].open)
            connection_flush(&vms[i].connection);
    for (size_t i = 0; i < step_count; i++)
        if (steps[i]->has_client)
            connection_flush(&steps[i]->client);
}

/* The first srun may have had lower limits than later ones: tasks get the limits of their own srun. */
static void raise_limits(void)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        if (i == RLIMIT_STACK || getrlimit(i, &limit) != 0)
            continue;
        limit.rlim_cur = limit.rlim_max;
        setrlimit(i, &limit);
    }
}

static bool listen_here(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, HUB_SOCKET, sizeof address.sun_path - 1);
    int lock = open(HUB_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0)
        return false;
    unlink(HUB_SOCKET);
    umask(077);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(listener, 128) == 0;
}

int hub_main(void)
{
    vjob = vjob_read();
    vms = allocate(vjob.count, sizeof *vms);
    used = allocate(vjob.count, sizeof *used);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    raise_limits();
    if (!listen_here())
        return 0; /* there is a hub already */
    events_hub();
    while (turn())
        settle();
    /* A client that has connected by now finds the connection closed, and starts another hub. */
    unlink(HUB_SOCKET);
    return 0;
}
