#define _GNU_SOURCE

#include "agent.h"

#include "protocol/wire.h"
#include "step.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct running {
    uint32_t step;
    bool done; /* it has said that it is done */
    struct connection connection;
};

static struct connection hub;
static struct running *steps;
static size_t step_count;

static void close_all_but(int kept)
{
    /* Another step's socket left open here would hide the agent's end from that step. */
    for (size_t i = 0; i < step_count; i++)
        close(steps[i].connection.in);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        if (fd != kept)
            dup2(null, fd);
    if (null > 2)
        close(null);
}

static void fail(uint32_t step, const char *why)
{
    send_data(&hub, FAILED, 0, step, 0, why, strlen(why) + 1);
}

static void start_step(uint32_t number)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        fail(number, "no socket can be made");
        return;
    }
    pid_t process = fork();
    if (process == 0) {
        close(ends[0]);
        close_all_but(ends[1]);
        step_run(ends[1]);
    }
    close(ends[1]);
    if (process < 0) {
        close(ends[0]);
        fail(number, "no process can be made");
        return;
    }
    steps = resized(steps, step_count + 1, sizeof *steps);
    steps[step_count] = (struct running){.step = number};
    connection_open(&steps[step_count++].connection, ends[0], ends[0]);
}

static struct running *find(uint32_t number)
{
    for (size_t i = 0; i < step_count; i++)
        if (steps[i].step == number)
            return &steps[i];
    return NULL;
}

static void read_hub(void)
{
    struct frame frame;
    connection_fill(&hub);
    while (connection_next(&hub, &frame)) {
        if (frame.type == START && find(frame.step) == NULL)
            start_step(frame.step);
        struct running *running = find(frame.step);
        if (running != NULL)
            connection_send(&running->connection, &frame);
    }
}

static void read_step(struct running *running)
{
    struct frame frame;
    connection_fill(&running->connection);
    while (connection_next(&running->connection, &frame)) {
        frame.step = running->step;
        running->done = running->done || frame.type == DONE;
        connection_send(&hub, &frame);
    }
}

static void remove_ended(void)
{
    for (size_t i = 0; i < step_count;) {
        if (!steps[i].connection.broken) {
            i++;
            continue;
        }
        if (!steps[i].done)
            fail(steps[i].step, "what ran the tasks was killed");
        connection_close(&steps[i].connection);
        steps[i] = steps[--step_count];
    }
}

static short wanted(const struct connection *connection)
{
    return (short)(POLLIN | (buffer_size(&connection->output) > 0 ? POLLOUT : 0));
}

static void turn(void)
{
    struct pollfd *polls = allocate(step_count + 2, sizeof *polls);
    size_t polled = step_count;
    polls[0] = (struct pollfd){hub.in, POLLIN, 0};
    polls[1] = (struct pollfd){buffer_size(&hub.output) > 0 ? hub.out : -1, POLLOUT, 0};
    for (size_t i = 0; i < polled; i++)
        polls[i + 2] = (struct pollfd){steps[i].connection.in, wanted(&steps[i].connection), 0};
    if (poll(polls, polled + 2, -1) > 0) {
        for (size_t i = 0; i < polled; i++)
            if (polls[i + 2].revents & ~POLLOUT)
                read_step(&steps[i]);
        if (polls[0].revents != 0)
            read_hub();
    }
    free(polls);
    for (size_t i = 0; i < step_count; i++)
        connection_flush(&steps[i].connection);
    remove_ended();
    connection_flush(&hub);
}

int agent_main(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* the kernel reaps the steps' processes */
    connection_open(&hub, STDIN_FILENO, STDOUT_FILENO);
    while (!hub.broken)
        turn();
    return 0;
}
