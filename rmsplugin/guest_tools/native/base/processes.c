#include "processes.h"

#include "files.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool process_look(pid_t pid, struct process *process)
{
    char path[32], stat[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, stat, sizeof stat - 1);
    close(fd);
    if (size <= 0)
        return false;
    stat[size] = '\0';
    /* The name of the program comes second, in parentheses, and may hold anything: count from behind it. */
    char *field = strrchr(stat, ')');
    if (field == NULL)
        return false;
    *process = (struct process){.pid = pid};
    field = strtok(field + 1, " \n");
    for (int number = 3; field != NULL; field = strtok(NULL, " \n"), number++)
        switch (number) {
        case 3: process->state = *field; break;
        case 6: process->session = atoi(field); break;
        case 20: process->threads = atoi(field); break;
        case 52: process->exit_code = atoi(field); break;
        }
    return true;
}

void session_each(pid_t session, bool (*act)(const struct process *process, void *context), void *context)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    struct process process;
    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (!isdigit((unsigned char)*entry->d_name) || !process_look(atoi(entry->d_name), &process))
            continue;
        if (process.session == session && !act(&process, context))
            break;
    }
    if (all != NULL)
        closedir(all);
}

int process_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void enter_job(void)
{
    char pid[32];
    int procs = open(VJOB_GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0)
        return;
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    write_all(procs, pid, strlen(pid));
    close(procs);
}

void be_kept(const char *oom_score_adj)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, oom_score_adj, strlen(oom_score_adj));
    close(fd);
}
