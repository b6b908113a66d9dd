/* shadow: a task of the step by which Slurm knows of a step in the VMs (docs/decisions/0047). Runs on the front, started
 * by the site's srun. It says `step NUMBER PID`, `suspended 1` and `0`, and `signal NUMBER` of each other signal that it gets.
 * A line `exit CODE` or `signal NUMBER` of standard input makes it end in that way. It dies when standard input ends without
 * such a line: nobody knows of it any more. */

#define _GNU_SOURCE

#include "programs.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int take_signals(void)
{
    static const int left[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGCHLD};
    static const int ignored[] = {SIGPIPE, SIGTTIN, SIGTTOU};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        sigdelset(&set, left[i]);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        sigdelset(&set, ignored[i]);
        signal(ignored[i], SIG_IGN);
    }
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static void say(const char *word, int number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d\n", word, number);
    (void)!write(STDOUT_FILENO, line, (size_t)length); /* a reader that has gone closes our input, too */
}

static void say_step(const char *step)
{
    char words[32];
    snprintf(words, sizeof words, "step %.16s", step);
    say(words, (int)getpid());
}

/* A suspend is SIGTSTP and SIGSTOP, its end SIGCONT: the VMs sleep meanwhile. Any other SIGCONT is the step's. */
static void take_signal(int number)
{
    static bool suspended;
    if (number == SIGTSTP || (number == SIGCONT && suspended)) {
        suspended = number == SIGTSTP;
        say("suspended", suspended);
    } else {
        say("signal", number);
    }
}

static void die_by(int number)
{
    struct rlimit none = {0, 0};
    sigset_t set;
    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(128 + number);
}

static void obey(const char *line)
{
    int number;
    if (sscanf(line, "exit %d", &number) == 1)
        _exit(number & 255);
    if (sscanf(line, "signal %d", &number) == 1 && number > 0 && number < NSIG)
        die_by(number);
    _exit(1);
}

int shadow_main(int argc, char **argv)
{
    char line[64];
    size_t size = 0;
    const char *rank = getenv("SLURM_PROCID"), *step = getenv("SLURM_STEP_ID");
    bool first = rank == NULL || strcmp(rank, "0") == 0;
    int signals = take_signals();
    (void)argc, (void)argv;
    if (first)
        say_step(step != NULL ? step : "?");
    for (;;) {
        struct pollfd polls[2] = {{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}};
        struct signalfd_siginfo info;
        poll(polls, 2, -1);
        if (polls[1].revents != 0 && read(signals, &info, sizeof info) == (ssize_t)sizeof info && first)
            take_signal((int)info.ssi_signo);
        if (polls[0].revents == 0)
            continue;
        ssize_t got = read(STDIN_FILENO, line + size, sizeof line - 1 - size);
        if (got <= 0)
            die_by(SIGKILL);
        size += (size_t)got;
        line[size] = '\0';
        if (strchr(line, '\n') != NULL || size == sizeof line - 1)
            obey(line);
    }
}
