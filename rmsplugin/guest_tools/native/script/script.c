#include "script.h"

#include "base/files.h"
#include "base/names.h"
#include "base/processes.h"
#include "protocol/hub_connect.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pid_t script_pid(void)
{
    return (pid_t)read_number(VJOB_STATE "/pid", 0);
}

pid_t script_supervisor(void)
{
    char line[LINE_BYTES]; /* SUPERVISOR STARTER */
    return read_line(VJOB_STATE "/started", line) ? (pid_t)atoi(line) : 0;
}

static void keep_number(const char *name, int number)
{
    char text[32];
    snprintf(text, sizeof text, "%d\n", number);
    if (!keep(VJOB_STATE, name, text))
        fail(1, "cannot write %s/%s", VJOB_STATE, name);
}

static int io_file = -1;

/* Only root may open this file of a zombie; a process that has opened it before may read on. */
static void open_io(pid_t pid)
{
    char path[PATH_BYTES];
    if (io_file >= 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    io_file = open(path, O_RDONLY | O_CLOEXEC);
}

/* The bytes read and written by the script and the children that it waited for: its zombie tells them, and goes now. Another
 * process that saw the end may let it go meanwhile; the file of a vanishing process tells only its own part. */
static void keep_io(pid_t pid)
{
    char text[LINE_BYTES * 2];
    struct process process;
    ssize_t size = io_file < 0 ? -1 : pread(io_file, text, sizeof text - 1, 0);
    if (size <= 0 || !process_look(pid, &process))
        return;
    text[size] = '\0';
    keep(VJOB_STATE, "io", text);
}

static void record(int status)
{
    if (WIFSIGNALED(status)) {
        keep_number("signal", WTERMSIG(status));
        keep_number("exit", 128 + WTERMSIG(status));
    } else {
        keep_number("exit", WEXITSTATUS(status));
    }
    kill(script_supervisor(), SIGKILL);
}

bool script_ended(void)
{
    struct process process;
    pid_t supervisor, pid;
    if (exists(VJOB_STATE "/exit"))
        return true;
    if ((supervisor = script_supervisor()) <= 0)
        return false;
    if ((pid = script_pid()) > 0 && process_look(pid, &process)) {
        /* The first thread of a program may end before the others do. */
        open_io(pid);
        if (process.state != 'Z' || process.threads > 1)
            return false;
        keep_io(pid);
        record(process.exit_code);
        return true;
    }
    if (process_look(supervisor, &process) && process.state != 'Z')
        return false;
    /* All processes of the user were killed, supervisor included. (It may have done its work before.) */
    if (!exists(VJOB_STATE "/exit"))
        record(SIGKILL);
    return true;
}

bool script_steps_ended(void)
{
    enum { UNKNOWN = -2, NONE = -1, GRACE_S = 5 };
    static int steps = UNKNOWN;
    static time_t until;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (steps == UNKNOWN) {
        steps = hub_end_steps();
        until = now.tv_sec + vjob_number("kill_wait", 30) + GRACE_S;
    }
    struct pollfd polled = {.fd = steps, .events = POLLIN};
    if (steps == NONE || (poll(&polled, 1, 0) <= 0 && now.tv_sec < until))
        return steps == NONE;
    close(steps);
    steps = NONE;
    return true;
}

static bool is_last_to_end(const struct process *process, void *others)
{
    *(bool *)others = process->state != 'Z';
    return process->state == 'Z';
}

bool script_others_left(void)
{
    bool others = false;
    pid_t session = script_pid();
    if (session > 0)
        session_each(session, is_last_to_end, &others);
    return others;
}
