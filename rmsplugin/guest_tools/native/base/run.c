#include "run.h"

#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define RUN VJOB_STATE "/run"

static off_t own = -1;

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
    if (done && read_number(RUN, -1) < number)
        done = pwrite(fd, line, (size_t)length, 0) == length && ftruncate(fd, length) == 0;
    if (fd >= 0)
        close(fd);
    return done;
}

void enter_run(const char *number)
{
    if (!parse_number(number, &own))
        fail(2, "no such run: %s", number);
    if (!raise_to(own))
        fail(1, "cannot write %s", RUN);
    leave_if_superseded();
}
