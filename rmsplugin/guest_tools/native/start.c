/* rmsplugin-guest start: have the script run, detached from the connection that asks for it; exactly once, as run-script
 * sees to. */

#include "guest.h"

#include "files.h"

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

static void become_supervisor(pid_t starter)
{
    char word[32];
    have_signals_do_what_they_do();
    int nothing = open("/dev/null", O_RDWR);
    snprintf(word, sizeof word, "%d", (int)starter);
    setsid();
    for (int fd = 0; fd < 3; fd++)
        dup2(nothing, fd);
    close(nothing);
    execl(BIN "/run-script", BIN "/run-script", "supervise", word, (char *)NULL);
    _exit(127);
}

int start(void)
{
    char line[LINE_BYTES], own[32];
    if (!exists(JOB "/started")) {
        if (!exists(JOB "/slurm_script"))
            fail(1, "there is no script");
        pid_t starter = getpid();
        if (fork() == 0)
            become_supervisor(starter);
    }
    for (int waited_us = 0; !exists(JOB "/claimed"); waited_us += PAUSE_US) {
        if (waited_us >= LONGEST_US)
            fail(1, "the script does not start");
        usleep(PAUSE_US);
    }
    snprintf(own, sizeof own, " %d", (int)getpid());
    const char *starter = read_line(JOB "/started", line) ? strchr(line, ' ') : NULL;
    puts(starter != NULL && strcmp(starter, own) == 0 ? "started" : "already");
    return EXIT_SUCCESS;
}
