/* sentry: a child of the wrapper, on the front, that sees it stopped (docs/decisions/0069). A process cannot catch SIGSTOP, and
 * only its parent, which is slurmstepd, is told of a stop: so this process looks, once a second. Its arguments are the words
 * that start another program while the wrapper is stopped, followed by the process ids of the wrapper and of its other child,
 * and `stop`.
 *
 * Standard input has the wrapper's words: `child PID`, `suspended` (Slurm suspends the job: the next stop is not meant for the
 * script), `continued` (the suspension has ended), `passed` (the wrapper passed SIGCONT on to the script). At the end of
 * standard input the wrapper has ended, and so does this process.
 *
 * A wrapper may be stopped before it can say that it is suspended. It says so when it goes on, and keeps SIGCONT to itself; the
 * program is then started with `continue`, to undo what it did. */

#include "base/processes.h"
#include "programs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 1000, LOOK_OFTEN_MS = 200, LONGEST_LOOKS = 32 };

static pid_t wrapper;
static char child[16] = "0";
static bool suspended;
static bool stood_in; /* a stand-in acted since the script was last continued */
static bool undo;

static bool stopped(void)
{
    struct process process;
    return process_look(wrapper, &process) && process.state == 'T';
}

static void obey(const char *line)
{
    if (strncmp(line, "child ", 6) == 0)
        snprintf(child, sizeof child, "%.10s", line + 6);
    else if (strcmp(line, "suspended") == 0)
        suspended = true;
    else {
        undo = undo || (stood_in && strcmp(line, "continued") == 0);
        suspended = stood_in = false;
    }
}

/* Returns false at the end of the wrapper. */
static bool listen_for(int milliseconds)
{
    static char data[256];
    static size_t size;
    struct pollfd polled = {STDIN_FILENO, POLLIN, 0};
    if (poll(&polled, 1, milliseconds) <= 0)
        return true;
    ssize_t got = read(STDIN_FILENO, data + size, sizeof data - 1 - size);
    if (got <= 0)
        return false;
    size += (size_t)got;
    data[size] = '\0';
    char *line = data;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        obey(line);
    }
    size = strlen(line);
    memmove(data, line, size + 1);
    return size < sizeof data - 1;
}

static pid_t start_stand_in(char **words, int count)
{
    char own[16];
    char **all = calloc((size_t)count + 4, sizeof *all);
    pid_t process = all != NULL ? fork() : -1;
    if (process == 0) {
        memcpy(all, words, (size_t)count * sizeof *all);
        snprintf(own, sizeof own, "%d", (int)wrapper);
        all[count] = own;
        all[count + 1] = child;
        all[count + 2] = undo ? "continue" : "stop";
        execv(all[0], all);
        _exit(127);
    }
    free(all);
    if (process > 0 && !undo)
        stood_in = true;
    return process < 0 ? 0 : process;
}

/* Reaps the stand-in after its end; `undoing`: it was started with `continue`. */
static bool has_ended(pid_t stand_in, bool undoing)
{
    int status;
    if (waitpid(stand_in, &status, WNOHANG) != stand_in)
        return false;
    if (undoing && status == 0)
        undo = false;
    return true;
}

/* Signals that Slurm sends to all processes of a job are ignored here, as far as a process can. */
static void leave_signals(void)
{
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        if (number != SIGCHLD)
            signal(number, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int sentry_main(int argc, char **argv)
{
    pid_t stand_in = 0;
    bool undoing = false;
    int looks = 1, wait_looks = 0;
    wrapper = getppid();
    leave_signals();
    setsid(); /* signals to the script and its children must not reach this process */
    while (listen_for(stand_in > 0 ? LOOK_OFTEN_MS : LOOK_MS)) {
        if (stand_in > 0 && has_ended(stand_in, undoing)) {
            stand_in = 0;
            wait_looks = looks; /* a stand-in that failed: longer and longer pauses */
            looks = looks < LONGEST_LOOKS ? looks * 2 : looks;
        }
        if (stand_in > 0)
            continue;
        if (!undo && (suspended || !stopped()))
            looks = 1, wait_looks = 0;
        else if (wait_looks > 0)
            wait_looks--;
        else {
            undoing = undo;
            stand_in = start_stand_in(argv + 1, argc - 1);
        }
    }
    return EXIT_SUCCESS;
}
