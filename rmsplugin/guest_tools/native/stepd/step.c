#define _GNU_SOURCE

#include "step.h"

#include "descendants.h"
#include "task_scripts.h"
#include "tasks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_LIMIT = 8192,    /* a longer line goes in parts */
    PIPE_SIZE = 64 << 10, /* what a pipe holds */
    TOGETHER_MS = 250,    /* tasks that end within this time are told together */
    LEFTOVERS_MS = 10,    /* between two looks at processes left behind by tasks */
    WITHOUT_SRUN_S = 2,   /* from SIGTERM to SIGKILL when srun is gone */
    EPILOG_MS = 5000,     /* as long as Slurm lets an epilog of --task-epilog run */
};

static struct {
    struct connection link;
    struct plan plan;
    struct task *tasks;
    uint32_t running;
    int children; /* signalfd */

    struct buffer input; /* input that a task has not taken yet, from byte input_base on */
    uint64_t input_base;
    bool input_ended;

    uint32_t unread;  /* bytes of output that srun has not written out */
    bool orphaned;
    int64_t tell_at, kill_at, look_at; /* in ms; 0: never */
} step;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void end_tasks(uint32_t grace_s)
{
    if (grace_s > 0) {
        signal_descendants(SIGCONT);
        signal_descendants(SIGTERM);
    }
    int64_t at = now_ms() + (int64_t)grace_s * 1000;
    if (step.kill_at == 0 || at < step.kill_at)
        step.kill_at = at;
}

static void say(const char *text)
{
    char *line = formatted("slurmstepd-%s: error: %s\n", step.plan.name, text);
    send_data(&step.link, SAYS, 0, 0, 0, line, strlen(line));
    free(line);
}

/* ---- output ---- */

static void send_output(struct task *task, int stream, size_t size)
{
    struct buffer *held = &task->held[stream];
    if (size > 0 && !step.orphaned) {
        send_data(&step.link, stream == 0 ? OUTPUT : ERRORS, 0, 0, task->number, buffer_data(held), size);
        step.unread += (uint32_t)size;
    }
    buffer_taken(held, size);
}

static size_t whole_lines(struct buffer *held)
{
    size_t size = buffer_size(held);
    if (step.plan.unbuffered || size >= LINE_LIMIT)
        return size;
    const char *end = size > 0 ? memrchr(buffer_data(held), '\n', size) : NULL;
    return end != NULL ? (size_t)(end - buffer_data(held)) + 1 : 0;
}

static bool output_wanted(void)
{
    return step.orphaned || step.unread < WINDOW;
}

static void read_output(struct task *task, int stream)
{
    struct buffer *held = &task->held[stream];
    ssize_t got = read(task->output[stream], buffer_room(held, CHUNK), CHUNK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        buffer_added(held, (size_t)got);
        send_output(task, stream, whole_lines(held));
        return;
    }
    send_output(task, stream, buffer_size(held));
    buffer_free(held);
    close(task->output[stream]);
    task->output[stream] = -1;
}

/* What a task wrote before it ended is sent before its end is, as far as its reader keeps up. */
static void read_rest(struct task *task)
{
    for (int stream = 0; stream < 2; stream++)
        for (size_t size = 0; size < PIPE_SIZE && task->output[stream] >= 0 && output_wanted(); size += CHUNK)
            read_output(task, stream);
}

static bool output_open(void)
{
    for (uint32_t i = 0; i < step.plan.local; i++)
        if (step.tasks[i].output[0] >= 0 || step.tasks[i].output[1] >= 0)
            return true;
    return false;
}

/* ---- input ---- */

static uint64_t input_end(void)
{
    return step.input_base + buffer_size(&step.input);
}

static void close_input(struct task *task)
{
    close(task->input);
    task->input = -1;
}

static void feed(struct task *task)
{
    while (task->fed < input_end()) {
        uint64_t offset = task->fed - step.input_base;
        ssize_t put = write(task->input, buffer_data(&step.input) + offset, buffer_size(&step.input) - offset);
        if (put < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (put < 0) {
            close_input(task);
            return;
        }
        task->fed += (uint64_t)put;
    }
    if (step.input_ended)
        close_input(task);
}

/* Forget the input that all tasks have taken, and let srun send as much again. */
static void forget_input(void)
{
    uint64_t least = input_end();
    for (uint32_t i = 0; i < step.plan.local; i++)
        if (step.tasks[i].input >= 0 && step.tasks[i].fed < least)
            least = step.tasks[i].fed;
    uint32_t taken = (uint32_t)(least - step.input_base);
    if (taken == 0)
        return;
    buffer_taken(&step.input, taken);
    step.input_base = least;
    send_number(&step.link, INPUT_TAKEN, 0, 0, taken);
}

static void take_input(const struct frame *frame)
{
    buffer_append(&step.input, frame->data, frame->size);
    step.input_ended = step.input_ended || frame->size == 0;
    for (uint32_t i = 0; i < step.plan.local; i++)
        if (step.tasks[i].input >= 0)
            feed(&step.tasks[i]);
    forget_input();
}

/* ---- ends ---- */

static bool has_finished(const struct task *task)
{
    return task->process == 0 && task->epilog == 0;
}

static void tell_exits(void)
{
    for (uint32_t first = 0; first < step.plan.local; first++) {
        if (step.tasks[first].told || !has_finished(&step.tasks[first]))
            continue;
        struct buffer data = {0};
        put_number(&data, (uint32_t)step.tasks[first].status);
        for (uint32_t i = first; i < step.plan.local; i++) {
            struct task *task = &step.tasks[i];
            if (task->told || !has_finished(task) || task->status != step.tasks[first].status)
                continue;
            put_number(&data, task->number);
            task->told = true;
        }
        send_data(&step.link, EXITED, 0, 0, 0, buffer_data(&data), buffer_size(&data));
        buffer_free(&data);
    }
    step.tell_at = 0;
}

/* The task has ended, and its epilog, if it had one. */
static void finish(void)
{
    step.running--;
    if (step.tell_at == 0)
        step.tell_at = now_ms() + TOGETHER_MS;
    if (step.running > 0 || step.tasks[0].errors < 0)
        return;
    close(step.tasks[0].errors);
    step.tasks[0].errors = -1;
}

static void task_has_ended(uint32_t local, int status)
{
    struct task *task = &step.tasks[local];
    task->status = status;
    if (task->process > 0)
        task->epilog = task_epilog_start(&step.plan, local, step.tasks[0].errors);
    task->process = 0;
    task->epilog_until = now_ms() + EPILOG_MS;
    if (task->epilog == 0)
        finish();
}

static void has_ended(pid_t process, int status)
{
    for (uint32_t i = 0; i < step.plan.local; i++) {
        struct task *task = &step.tasks[i];
        if (task->process == process) {
            read_rest(task);
            task_has_ended(i, status);
            return;
        }
        if (task->epilog == process) {
            task_epilog_ended(&step.plan, process, status, step.tasks[0].errors);
            task->epilog = 0;
            finish();
            return;
        }
    }
}

static void stop_epilogs(int64_t now)
{
    for (uint32_t i = 0; i < step.plan.local; i++)
        if (step.tasks[i].epilog > 0 && now >= step.tasks[i].epilog_until) {
            task_epilog_stop(step.tasks[i].epilog);
            step.tasks[i].epilog_until = now + EPILOG_MS;
        }
}

/* Reap ended processes. Returns whether any process is left. */
static bool reap(void)
{
    for (;;) {
        int status;
        pid_t process = waitpid(-1, &status, WNOHANG);
        if (process > 0)
            has_ended(process, status);
        else if (process == 0)
            return true;
        else if (errno != EINTR)
            return false;
    }
}

/* ---- the loop ---- */

static void obey(const struct frame *frame)
{
    struct reader reader = reader_of(frame);
    switch (frame->type) {
    case INPUT: take_input(frame); break;
    case OUTPUT_TAKEN: {
        uint32_t taken = get_number(&reader);
        step.unread -= taken < step.unread ? taken : step.unread;
        break;
    }
    case SIGNAL: signal_descendants((int)frame->task); break;
    case END: end_tasks(frame->task); break;
    case ORPHANED:
        step.orphaned = true;
        end_tasks(WITHOUT_SRUN_S);
        break;
    default: break;
    }
}

static void obey_all(void)
{
    struct frame frame;
    while (connection_next(&step.link, &frame))
        obey(&frame);
}

static void read_link(void)
{
    connection_fill(&step.link);
    obey_all();
    if (step.link.broken && !step.orphaned) {
        step.orphaned = true;
        end_tasks(WITHOUT_SRUN_S);
    }
}

struct watched {
    struct task *task;
    int stream; /* 0: input; 1, 2: output */
};

static nfds_t watch_tasks(struct pollfd *polls, struct watched *watched, nfds_t count)
{
    bool room = output_wanted();
    for (uint32_t i = 0; i < step.plan.local; i++) {
        struct task *task = &step.tasks[i];
        if (task->input >= 0) {
            /* Nothing is to be written: poll only to see that nobody reads any more. */
            polls[count] = (struct pollfd){task->input, task->fed < input_end() ? POLLOUT : 0, 0};
            watched[count++] = (struct watched){task, 0};
        }
        for (int stream = 0; stream < 2; stream++)
            if (task->output[stream] >= 0 && room) {
                polls[count] = (struct pollfd){task->output[stream], POLLIN, 0};
                watched[count++] = (struct watched){task, stream + 1};
            }
    }
    return count;
}

static int until_next(void)
{
    int64_t next = 0;
    const int64_t times[] = {step.tell_at, step.kill_at, step.look_at};
    for (int i = 0; i < 3; i++)
        if (times[i] != 0 && (next == 0 || times[i] < next))
            next = times[i];
    for (uint32_t i = 0; *step.plan.task_epilog != 0 && i < step.plan.local; i++)
        if (step.tasks[i].epilog > 0 && (next == 0 || step.tasks[i].epilog_until < next))
            next = step.tasks[i].epilog_until;
    if (next == 0)
        return -1;
    int64_t left = next - now_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void turn(struct pollfd *polls, struct watched *watched)
{
    nfds_t count = 0;
    polls[count++] = (struct pollfd){step.children, POLLIN, 0};
    if (!step.link.broken)
        polls[count++] = (struct pollfd){
            step.link.in, POLLIN | (buffer_size(&step.link.output) > 0 ? POLLOUT : 0), 0};
    nfds_t first = count;
    count = watch_tasks(polls, watched, count);
    if (poll(polls, count, until_next()) < 0)
        return;
    struct signalfd_siginfo info;
    while (read(step.children, &info, sizeof info) > 0)
        ;
    for (nfds_t i = first; i < count; i++) {
        struct task *task = watched[i].task;
        if (polls[i].revents == 0)
            continue;
        if (watched[i].stream > 0)
            read_output(task, watched[i].stream - 1);
        else if (polls[i].revents & (POLLERR | POLLHUP))
            close_input(task);
        else
            feed(task);
    }
    forget_input();
    if (first > 1 && polls[1].revents & (POLLIN | POLLHUP | POLLERR))
        read_link();
    connection_flush(&step.link);
}

/* Processes that tasks leave behind are killed when the last task has ended, as Slurm does. Returns whether all is over. */
static bool over(void)
{
    bool left = reap();
    int64_t now = now_ms();
    if (step.tell_at != 0 && (step.running == 0 || now >= step.tell_at))
        tell_exits();
    if (step.kill_at != 0 && now >= step.kill_at) {
        signal_descendants(SIGKILL);
        step.kill_at = now + 1000;
    }
    stop_epilogs(now);
    if (step.running > 0)
        return false;
    if (left && now >= step.look_at) {
        signal_descendants(SIGKILL);
        step.look_at = now + LEFTOVERS_MS;
    }
    if (!left)
        step.look_at = 0;
    return !left && !output_open();
}

static void enter_directory(void)
{
    umask((mode_t)step.plan.mask);
    if (chdir(step.plan.directory) == 0)
        return;
    char *text = formatted("couldn't chdir to `%s': %s: going to /tmp instead", step.plan.directory, strerror(errno));
    say(text);
    free(text);
    if (chdir("/tmp") != 0)
        _exit(1);
}

static void start_tasks(void)
{
    step.tasks = allocate(step.plan.local, sizeof *step.tasks);
    for (uint32_t i = 0; i < step.plan.local; i++)
        step.tasks[i].input = step.tasks[i].output[0] = step.tasks[i].output[1] = step.tasks[i].errors = -1;
    for (uint32_t i = 0; i < step.plan.local; i++) {
        char *problem = NULL;
        step.running++;
        if (task_start(&step.plan, i, &step.tasks[i], &problem))
            continue;
        say(problem);
        free(problem);
        step.tasks[i].process = -1;
        has_ended(-1, 1 << 8);
    }
}

static void read_plan(void)
{
    struct frame frame;
    struct pollfd polled = {step.link.in, POLLIN, 0};
    while (!connection_next(&step.link, &frame)) {
        if (step.link.broken)
            _exit(0);
        poll(&polled, 1, -1);
        connection_fill(&step.link);
    }
    frame.data = memcpy(allocate(frame.size, 1), frame.data, frame.size);
    struct reader reader = reader_of(&frame);
    if (frame.type != START || !plan_get(&reader, &step.plan))
        _exit(1);
}

_Noreturn void step_run(int socket)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &children, NULL);
    step.children = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    connection_open(&step.link, socket, socket);
    read_plan();
    enter_directory();
    start_tasks();
    struct pollfd *polls = allocate(3 * (size_t)step.plan.local + 2, sizeof *polls);
    struct watched *watched = allocate(3 * (size_t)step.plan.local + 2, sizeof *watched);
    obey_all(); /* frames that came together with the plan */
    while (!over())
        turn(polls, watched);
    send_data(&step.link, DONE, 0, 0, 0, NULL, 0);
    struct pollfd polled = {socket, POLLOUT, 0};
    while (buffer_size(&step.link.output) > 0 && !step.link.broken) {
        poll(&polled, 1, -1);
        connection_flush(&step.link);
    }
    _exit(0);
}
