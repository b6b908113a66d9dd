/* srun: asks the hub for a step, starts it, and stands for its tasks until they have ended. */

#define _GNU_SOURCE

#include "client.h"

#include "messages.h"
#include "programs.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what comes ---- */

static struct node *node_of_vm(struct client *client, uint32_t vm)
{
    for (uint32_t i = 0; i < client->layout.vm_count; i++)
        if (client->nodes[i].vm == vm)
            return &client->nodes[i];
    return NULL;
}

static void finish_node(struct client *client, struct node *node)
{
    if (!node->done)
        client->running_nodes--;
    node->done = true;
}

static void take(struct client *client, const struct frame *frame)
{
    struct node *node = node_of_vm(client, frame->vm);
    struct reader reader = reader_of(frame);
    if (frame->type == CANCELLED && frame->task == SIGTERM) {
        client_end(client, client->vjob.kill_wait, " DUE TO TIME LIMIT");
    } else if (frame->type == CANCELLED) { /* the hub kills the tasks */
        client->ended_by_slurm = true;
        client_end(client, client->vjob.kill_wait, "");
        client_say_aborted(client);
    }
    if (node == NULL || frame->type == CANCELLED)
        return;
    switch (frame->type) {
    case OUTPUT:
    case ERRORS: streams_output(client, frame); break;
    case INPUT_TAKEN: {
        uint32_t taken = get_number(&reader);
        node->input_unread -= taken < node->input_unread ? taken : node->input_unread;
        break;
    }
    case EXITED: exits_take(client, node, frame); break;
    case SAYS:
        if (write(STDERR_FILENO, frame->data, frame->size) < 0)
            error_message("A message of the step could not be written");
        break;
    case DONE: finish_node(client, node); break;
    case FAILED:
        finish_node(client, node);
        exits_node_failed(client, node, get_text(&reader));
        break;
    default: break;
    }
}

static void read_hub(struct client *client)
{
    struct frame frame;
    connection_fill(&client->hub);
    while (connection_next(&client->hub, &frame))
        take(client, &frame);
    if (client->hub.broken && client->running_nodes > 0) {
        error_message("The connection to the step daemon is gone; the tasks are being ended");
        client->broken = true;
        client->highest = client->highest > 0 ? client->highest : 1;
    }
}

/* ---- the loop ---- */

static void watch_streams(const struct client *client, struct pollfd *polls)
{
    for (uint32_t i = 0; i < client->component_count; i++) {
        const struct component *component = &client->components[i];
        polls[i] = (struct pollfd){streams_want_input(client, component) ? component->input : -1, POLLIN, 0};
    }
    for (uint32_t i = 0; i < client->sink_count; i++) {
        const struct sink *sink = client->sinks[i];
        bool waits = buffer_size(&sink->waiting) > 0;
        polls[client->component_count + i] = (struct pollfd){waits ? sink->fd : -1, POLLOUT, 0};
    }
}

static void turn(struct client *client, struct pollfd *polls, int signals)
{
    struct signalfd_siginfo info;
    nfds_t count = 2 + client->component_count + client->sink_count;
    polls[0] = (struct pollfd){client->hub.in, POLLIN, 0};
    polls[1] = (struct pollfd){signals, POLLIN, 0};
    if (buffer_size(&client->hub.output) > 0)
        polls[0].events |= POLLOUT;
    watch_streams(client, polls + 2);
    poll(polls, count, client_until_next(client));
    while (read(signals, &info, sizeof info) > 0)
        client_take_signal(client, (int)info.ssi_signo, (pid_t)info.ssi_pid);
    for (uint32_t i = 0; i < client->component_count; i++)
        if (polls[2 + i].revents != 0)
            streams_read_input(client, &client->components[i]);
    if (polls[0].revents & ~POLLOUT)
        read_hub(client);
    client_check_times(client);
    streams_flush(client);
    connection_flush(&client->hub);
}

static int take_signals(void)
{
    static const int taken[] = {SIGINT, SIGQUIT, SIGCONT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    /* Also signals that srun was started to ignore, as `nohup srun` and `srun &` of a script are: Slurm's srun does so, too. */
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        signal(taken[i], SIG_DFL);
        sigaddset(&set, taken[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void write_the_rest(struct client *client, struct pollfd *polls)
{
    while (streams_waiting(client)) {
        watch_streams(client, polls);
        poll(polls + client->component_count, client->sink_count, -1);
        streams_flush(client);
    }
}

/* Root could start a daemon here to which the job's user cannot connect. */
static void check_user(void)
{
    struct stat facts;
    if (stat(VJOB_JOB "/.", &facts) == 0 && facts.st_uid != getuid())
        error_exit(1, "steps can be made by the job's own user only");
}

int srun_main(int argc, char **argv)
{
    static struct client client;
    client.vjob = vjob_read();
    components_read(&client, argc, argv);
    if (client.options.quiet)
        messages_quiet();
    check_user();
    int signals = take_signals();
    step_create(&client, signals);
    client_bcast(&client);
    streams_choose(&client);
    step_start(&client);
    connection_flush(&client.hub);
    struct pollfd *polls = allocate(2 + (size_t)client.component_count + client.sink_count, sizeof *polls);
    while (client.running_nodes > 0 && !client.broken)
        turn(&client, polls, signals);
    write_the_rest(&client, polls);
    if (client.terminated && !client.forced && !client.ended_by_slurm)
        message("Force Terminated StepId=%s", component_id(&client, &client.components[0]));
    return client.highest;
}
