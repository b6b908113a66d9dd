#include "watch.h"

#include "base/files.h"
#include "base/processes.h"
#include "base/run.h"
#include "script.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

void watch_open(struct watch *watch, const char *stream)
{
    char path[PATH_BYTES];
    *watch = (struct watch){.script = -1, .supervisor = -1};
    watch->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    watch->directory = inotify_add_watch(watch->events, VJOB_STATE "/.", IN_CREATE | IN_MOVED_TO);
    int growth = stream == NULL ? 0 : inotify_add_watch(watch->events, path_to(path, VJOB_OUTPUT, stream, ""), IN_MODIFY);
    watch->looks = watch->directory < 0 || growth < 0; /* the user may have used up his inotifies */
    if (run_file() != NULL)
        watch_file(watch, run_file());
    leave_if_superseded(); /* by one that came before the watch */
}

void watch_file(struct watch *watch, const char *path)
{
    watch->looks = inotify_add_watch(watch->events, path, IN_MODIFY) < 0 || watch->looks;
}

static int opened(struct watch *watch, pid_t pid)
{
    int fd = pid > 0 ? process_open(pid) : -1;
    if (pid > 0 && fd < 0)
        watch->looks = true;
    return fd;
}

/* The files in state/ tell where the script is: as soon as it runs, its process does. */
static void find_script(struct watch *watch)
{
    if (watch->script >= 0 || watch->looks)
        return;
    if (watch->supervisor < 0)
        watch->supervisor = opened(watch, script_supervisor());
    if ((watch->script = opened(watch, script_pid())) >= 0)
        inotify_rm_watch(watch->events, watch->directory);
}

static void end_with_connection(void)
{
    char ignored[1 << 14];
    if (read(STDIN_FILENO, ignored, sizeof ignored) <= 0 && errno != EINTR)
        exit(EXIT_FAILURE);
}

/* The end of a process is news only once. */
static void forget(struct watch *watch, int *process)
{
    close(*process);
    *process = -1;
    watch->looks = true;
}

static void wait_for_something(struct watch *watch, int timeout_ms)
{
    char ignored[4096];
    find_script(watch);
    struct pollfd some[] = {
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = watch->events, .events = POLLIN},
        {.fd = watch->script, .events = POLLIN},
        {.fd = watch->supervisor, .events = POLLIN},
        {.fd = STDOUT_FILENO}, /* POLLERR: nobody reads it any more */
    };
    if (watch->looks && (timeout_ms < 0 || timeout_ms > LOOK_MS))
        timeout_ms = LOOK_MS;
    if (poll(some, sizeof some / sizeof *some, timeout_ms) <= 0)
        return;
    if (some[4].revents)
        exit(EXIT_FAILURE);
    if (some[0].revents)
        end_with_connection();
    while (some[1].revents && read(watch->events, ignored, sizeof ignored) > 0) {
    }
    if (some[2].revents)
        forget(watch, &watch->script);
    if (some[3].revents)
        forget(watch, &watch->supervisor);
}

void watch_wait(struct watch *watch, int timeout_ms)
{
    wait_for_something(watch, timeout_ms);
    leave_if_superseded();
}
