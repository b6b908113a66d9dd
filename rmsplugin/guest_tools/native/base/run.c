#include "run.h"

#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define RUN VJOB_STATE "/run"
#define CONNECTIONS VJOB_STATE "/connections" /* locked as long as a wrapper is connected */

enum { PATIENCE_MS = 3000, LOOK_MS = 10 };

static off_t own = -1;
static bool follows_another; /* this process has raised the number */

void leave_if_superseded(void)
{
    if (own >= 0 && read_number(RUN, -1) > own)
        fail(SUPERSEDED, "a later run of the job has this VM");
}

const char *run_file(void)
{
    return own < 0 ? NULL : RUN;
}

/* Written in place, so that those who wait see it, and by one process at a time. */
static bool raise_to(off_t number)
{
    char line[32];
    int length = snprintf(line, sizeof line, "%lld\n", (long long)number);
    int fd = open(RUN, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool done = fd >= 0 && flock(fd, LOCK_EX) == 0;
    off_t before = done ? read_number(RUN, -1) : number;
    if (before < number)
        done = pwrite(fd, line, (size_t)length, 0) == length && ftruncate(fd, length) == 0;
    follows_another = before >= 0 && before < number;
    if (fd >= 0)
        close(fd);
    return done;
}

static int lock_connections(int how)
{
    int fd = open(CONNECTIONS, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, how | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

void hold_connection(void)
{
    lock_connections(LOCK_SH); /* the end of this process unlocks it */
}

/* A wrapper whose host is cut off does not let go: its connection breaks later. */
void await_former_wrappers(void)
{
    struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    int fd = -1;
    for (int waited_ms = 0; follows_another && fd < 0 && waited_ms < PATIENCE_MS; waited_ms += LOOK_MS)
        if ((fd = lock_connections(LOCK_EX)) < 0)
            nanosleep(&pause, NULL);
    if (fd >= 0)
        close(fd);
}

void enter_run(const char *number)
{
    if (!parse_number(number, &own))
        fail(2, "no such run: %s", number);
    if (!raise_to(own))
        fail(1, "cannot write %s", RUN);
    leave_if_superseded();
}
