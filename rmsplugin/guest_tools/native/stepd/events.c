#define _GNU_SOURCE

#include "events.h"

#include "base/names.h"
#include "protocol/hub_connect.h"
#include "protocol/layout.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The file is in the memory of many VMs. When it is so large, further steps are not told. */
enum { LARGEST_FILE = 1 << 20 };

static void add(const char *line)
{
    int file = open(HUB_EVENTS, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    /* All or nothing: a reader takes whole lines, and without room in the VM Slurm does not hear of the step. */
    (void)!write(file, line, strlen(line));
    close(file);
}

void events_hub(void)
{
    struct stat facts;
    if (stat(HUB_EVENTS, &facts) == 0 && facts.st_size > 0)
        add("hub\n");
}

void events_began(uint32_t step, uint32_t ntasks, uint32_t limit_s, const char *name)
{
    char line[NAME_BYTES + 96], limit[40] = "", shown[NAME_BYTES];
    struct stat facts;
    if (stat(HUB_EVENTS, &facts) == 0 && facts.st_size > LARGEST_FILE)
        return;
    snprintf(shown, sizeof shown, "%s", name);
    for (char *at = shown; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    if (limit_s > 0)
        snprintf(limit, sizeof limit, "limit %u %u\n", step, limit_s / 60);
    snprintf(line, sizeof line, "%sbegan %u %u %s\n", limit, step, ntasks, shown);
    add(line);
}

void events_ended(uint32_t step, int status)
{
    char line[64];
    if (WIFSIGNALED(status))
        snprintf(line, sizeof line, "ended %u signal %d\n", step, WTERMSIG(status));
    else
        snprintf(line, sizeof line, "ended %u exit %d\n", step, WEXITSTATUS(status));
    add(line);
}

int events_worse(int status, const struct frame *frame)
{
    struct reader reader = reader_of(frame);
    int other = frame->type == EXITED ? (int)get_number(&reader) : SIGKILL; /* the process that ran the tasks is gone */
    if (WIFSIGNALED(status) || (!WIFSIGNALED(other) && WEXITSTATUS(other) <= WEXITSTATUS(status)))
        return status;
    return other;
}
