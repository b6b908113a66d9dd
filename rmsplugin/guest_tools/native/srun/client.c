/* srun: asks the hub for a step, starts it, and stands for its tasks until they have ended. */

#define _GNU_SOURCE

#include "client.h"

#include "protocol/hub_connect.h"
#include "messages.h"
#include "programs.h"
#include "programs_file.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECT_TRIES = 3,
    WITHOUT_SLURM_S = 120, /* past a step's limit, if Slurm does not see to it */
    ABORT_S = 2,        /* Slurm's srun waits for so long beyond KillWait */
    INTERRUPT_MS = 400, /* from the tasks' SIGINT to their SIGKILL, if both are sent */
};

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

/* ---- the step ---- */

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

/* Root could start a daemon here to which the job's user cannot connect. */
static void check_user(void)
{
    struct stat facts;
    if (stat(VJOB_JOB "/.", &facts) == 0 && facts.st_uid != getuid())
        error_exit(1, "steps can be made by the job's own user only");
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

static void create_step(struct client *client, int signals)
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

/* ---- the start ---- */

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

static void start_step(struct client *client)
{
    if (client->options.verbose > 0)
        say_nodes(client);
    for (uint32_t i = 0; i < client->component_count; i++)
        start_component(client, &client->components[i]);
    client->started_ms = client_now_ms();
}

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

/* After two Ctrl-C: SIGKILL, after the tasks have had SIGINT. */
static void force_termination(struct client *client)
{
    if (client->cancelled) {
        message("job abort in progress");
        return;
    }
    message("forcing job termination");
    client->cancelled = true;
    client_say_aborted(client);
    client->kill_ms = client_now_ms() + INTERRUPT_MS;
}

static void interrupted(struct client *client)
{
    int64_t now = client_now_ms();
    bool again = client->interrupted_ms != 0 && now - client->interrupted_ms <= 1000;
    if (again || client->options.quit_on_interrupt || client->options.no_abort_status) {
        message("sending Ctrl-C to StepId=%s", client->id);
        client_to_all(client, SIGNAL, SIGINT);
    }
    if (again || client->options.quit_on_interrupt) {
        force_termination(client);
        return;
    }
    client->interrupted_ms = now;
    if (client->options.no_abort_status || client->cancelled)
        return;
    message("interrupt (one more within 1 sec to abort)");
    exits_status(client);
}

/* Whether a process of ours has sent it: the control program, which passes on Slurm's signals to the job, or a step
 * of which this srun is a task. */
static bool sent_by_us(pid_t sender)
{
    char path[32], theirs[PATH_MAX] = "", ours[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/%d/exe", (int)sender);
    return readlink(path, theirs, sizeof theirs - 1) > 0 && readlink("/proc/self/exe", ours, sizeof ours - 1) > 0 &&
           strcmp(theirs, ours) == 0;
}

/* For a job that Slurm ends: its tasks get SIGTERM, which natively comes from Slurm itself, and as much time as natively
 * before SIGKILL. If any other process ends srun, srun kills its tasks. */
static void terminated(struct client *client, pid_t sender)
{
    bool first = !client->ending;
    message("forcing job termination");
    client_say_aborted(client);
    client->forced = !sent_by_us(sender);
    client_end(client, first && !client->forced ? client->vjob.kill_wait : 0, "");
}

static void take_signal(struct client *client, int number, pid_t sender)
{
    switch (number) {
    case SIGINT: interrupted(client); break;
    case SIGQUIT: message("Quit"); /* fall through */
    case SIGTERM:
    case SIGHUP: terminated(client, sender); break;
    default: client_to_all(client, SIGNAL, (uint32_t)number);
    }
}

/* ---- time ---- */

static void check_times(struct client *client)
{
    const struct options *options = &client->options;
    int64_t now = client_now_ms();
    if (client->kill_ms != 0 && now >= client->kill_ms) {
        client->kill_ms = 0;
        client_end(client, 0, "");
    }
    if (client->ending)
        return;
    /* Slurm ends the step then, by its shadow. */
    if (options->request.limit_s > 0 &&
        now - client->started_ms >= ((int64_t)options->request.limit_s + WITHOUT_SLURM_S) * 1000)
        client_end(client, client->vjob.kill_wait, " DUE TO TIME LIMIT");
    else if (options->wait_s > 0 && client->first_end_ms != 0 &&
             now - client->first_end_ms >= (int64_t)options->wait_s * 1000) {
        message("First task exited %us ago", options->wait_s);
        exits_status(client);
        client_say_terminating(client);
        client_end(client, 0, "");
        client_say_aborted(client);
        client->forced = true;
    }
}

static int until_next(const struct client *client)
{
    if (client->kill_ms != 0)
        return INTERRUPT_MS;
    return !client->ending && (client->options.request.limit_s > 0 || client->options.wait_s > 0) ? 200 : -1;
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
    poll(polls, count, until_next(client));
    while (read(signals, &info, sizeof info) > 0)
        take_signal(client, (int)info.ssi_signo, (pid_t)info.ssi_pid);
    for (uint32_t i = 0; i < client->component_count; i++)
        if (polls[2 + i].revents != 0)
            streams_read_input(client, &client->components[i]);
    if (polls[0].revents & ~POLLOUT)
        read_hub(client);
    check_times(client);
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

int srun_main(int argc, char **argv)
{
    static struct client client;
    client.vjob = vjob_read();
    components_read(&client, argc, argv);
    if (client.options.quiet)
        messages_quiet();
    check_user();
    int signals = take_signals();
    create_step(&client, signals);
    client_bcast(&client);
    streams_choose(&client);
    start_step(&client);
    connection_flush(&client.hub);
    struct pollfd *polls = allocate(2 + (size_t)client.component_count + client.sink_count, sizeof *polls);
    while (client.running_nodes > 0 && !client.broken)
        turn(&client, polls, signals);
    write_the_rest(&client, polls);
    if (client.terminated && !client.forced && !client.ended_by_slurm)
        message("Force Terminated StepId=%s", component_id(&client, &client.components[0]));
    return client.highest;
}
