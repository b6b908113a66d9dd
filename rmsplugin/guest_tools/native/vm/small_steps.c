/* Small steps that all parts of configure use. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUN_S = 60 };

void make_directories(const char *path)
{
    char part[4096];
    for (size_t length = 1; length <= strlen(path); length++) {
        if (path[length] != '/' && path[length] != '\0')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST && !exists(part))
            fail(1, "cannot make %s: %s", part, strerror(errno));
    }
}

void give_to(const char *path, const struct facts *facts)
{
    if (chown(path, facts->uid, facts->gid) != 0)
        fail(1, "cannot give %s to %s: %s", path, facts->user, strerror(errno));
}

void link_to(const char *target, const char *path)
{
    unlink(path);
    if (symlink(target, path) != 0)
        fail(1, "cannot make the link %s: %s", path, strerror(errno));
}

bool has_program(const char *name)
{
    static const char *const places[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(path_to(path, places[i], name, ""), X_OK) == 0)
            return true;
    return false;
}

/* Whether the child ended in time. If it does not, all that it has started is killed; a process that survives that hangs in the
 * kernel, on a silent server. */
static bool wait_for(pid_t child, const sigset_t *child_ends, unsigned seconds, int *status)
{
    const struct timespec limit = {.tv_sec = seconds};
    pid_t ended;
    while ((ended = waitpid(child, status, WNOHANG)) == 0)
        if (sigtimedwait(child_ends, NULL, &limit) < 0 && errno == EAGAIN) {
            kill(-child, SIGKILL);
            return false;
        }
    return ended == child;
}

bool in_time(unsigned seconds, bool (*act)(const void *what), const void *what)
{
    int status = 0;
    sigset_t child_ends, before;
    sigemptyset(&child_ends);
    sigaddset(&child_ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ends, &before);
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        setpgid(0, 0);
        _exit(act(what) ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    bool ended = child > 0 && wait_for(child, &child_ends, seconds, &status);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ended && status == 0;
}

struct program {
    const char *const *words;
    bool silent;
};

static bool become(const void *what)
{
    const struct program *program = what;
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, 0);
    for (int fd = 1; program->silent && fd < 3; fd++)
        dup2(nothing, fd);
    execvp(program->words[0], (char *const *)program->words);
    return false;
}

bool run(const char *const words[], bool silent)
{
    return in_time(RUN_S, become, &(const struct program){words, silent});
}

pid_t run_apart(const char *const words[])
{
    pid_t child = fork();
    if (child == 0) {
        int nothing = open("/dev/null", O_RDWR);
        setsid();
        for (int fd = 0; fd < 3; fd++)
            dup2(nothing, fd);
        close(nothing);
        execv(words[0], (char *const *)words);
        _exit(127);
    }
    return child;
}

const char *mount_at(const char *target)
{
    const char *found = NULL;
    char *rest = text_of_file("/proc/mounts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (strcmp(field_of(line, ' ', 2), target) == 0)
            found = line;
    return found;
}
