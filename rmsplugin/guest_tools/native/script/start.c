/* rmsplugin-guest start: have the script run, detached from the requesting connection; exactly once. */

#include "guest.h"

#include "base/files.h"
#include "base/processes.h"
#include "script.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_US = 10000, LONGEST_US = 10000000 };

/* An init or an ssh server may ignore some, and a shell can not undo that. */
static void have_signals_do_what_they_do(void)
{
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void keep_or_die(const char *name, const char *text)
{
    if (!keep(VJOB_STATE, name, text))
        _exit(127);
}

/* Only one process makes a hard link, and from its first instant the link tells which. */
static bool claim(pid_t starter)
{
    char own[32], path[PATH_BYTES], text[64];
    snprintf(own, sizeof own, ".claim.%d", (int)getpid());
    snprintf(text, sizeof text, "%d %d\n", (int)getpid(), (int)starter);
    keep_or_die(own, text);
    bool claimed = link(path_to(path, VJOB_STATE, own, ""), VJOB_STATE "/started") == 0;
    unlink(path);
    if (claimed)
        keep_or_die("claimed", "");
    return claimed;
}

static void become_script(void)
{
    char text[32];
    have_signals_do_what_they_do();
    setsid();
    enter_job();
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    keep_or_die("pid", text);
    run_script();
}

/* The parent of the script, in a session of its own. It never reaps the script, whose zombie tells the ending exactly
 * (script.h), and heeds no signal but SIGKILL. It sleeps, and is not stopped: CRIU would wait for ever for a process that is
 * stopped, where the control groups of containers are those of version 1. */
static void become_supervisor(pid_t starter)
{
    sigset_t all;
    have_signals_do_what_they_do();
    int nothing = open("/dev/null", O_RDWR);
    setsid();
    for (int fd = 0; fd < 3; fd++)
        dup2(nothing, fd);
    close(nothing);
    if (!claim(starter))
        _exit(0);
    /* A signal to all of the user's processes must not find it between the two. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    pid_t script = fork();
    if (script == 0)
        become_script();
    if (script < 0)
        _exit(127);
    for (;;)
        pause();
}

int start(void)
{
    char line[LINE_BYTES], own[32];
    if (!exists(VJOB_STATE "/started")) {
        if (!exists(VJOB_JOB "/slurm_script"))
            fail(1, "there is no script");
        pid_t starter = getpid();
        if (fork() == 0)
            become_supervisor(starter);
    }
    for (int waited_us = 0; !exists(VJOB_STATE "/claimed"); waited_us += PAUSE_US) {
        if (waited_us >= LONGEST_US)
            fail(1, "the script does not start");
        usleep(PAUSE_US);
    }
    snprintf(own, sizeof own, " %d", (int)getpid());
    const char *starter = read_line(VJOB_STATE "/started", line) ? strchr(line, ' ') : NULL;
    puts(starter != NULL && strcmp(starter, own) == 0 ? "started" : "already");
    return EXIT_SUCCESS;
}
