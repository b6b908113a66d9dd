#include "descendants.h"

#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct process {
    pid_t number, parent;
    bool ours, dead;
};

static bool read_process(const char *name, struct process *process)
{
    char path[64], text[512];
    if (name[0] < '0' || name[0] > '9' || snprintf(path, sizeof path, "/proc/%.20s/stat", name) >= (int)sizeof path)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0)
        return false;
    text[size] = 0;
    /* The program's name is in parentheses, and may hold anything. */
    char *after = strrchr(text, ')');
    if (after == NULL || strlen(after) < 5)
        return false;
    process->number = (pid_t)strtol(name, NULL, 10);
    process->dead = after[2] == 'Z' || after[2] == 'X';
    process->parent = (pid_t)strtol(after + 4, NULL, 10);
    process->ours = process->parent == getpid();
    return true;
}

static struct process *read_processes(size_t *count)
{
    struct process *found = NULL;
    *count = 0;
    DIR *directory = opendir("/proc");
    if (directory == NULL)
        return NULL;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct process process;
        if (!read_process(entry->d_name, &process))
            continue;
        found = resized(found, *count + 1, sizeof *found);
        found[(*count)++] = process;
    }
    closedir(directory);
    return found;
}

static bool mark_children(struct process *processes, size_t count)
{
    bool more = false;
    for (size_t i = 0; i < count; i++)
        for (size_t parent = 0; !processes[i].ours && parent < count; parent++)
            if (processes[parent].ours && processes[parent].number == processes[i].parent)
                more = processes[i].ours = true;
    return more;
}

static size_t for_descendants(int number)
{
    size_t count, alive = 0;
    struct process *processes = read_processes(&count);
    while (mark_children(processes, count))
        ;
    for (size_t i = 0; i < count; i++)
        if (processes[i].ours && !processes[i].dead) {
            alive++;
            if (number > 0)
                kill(processes[i].number, number);
        }
    free(processes);
    return alive;
}

void signal_descendants(int number)
{
    for_descendants(number);
}

bool has_descendants(void)
{
    return for_descendants(0) > 0;
}
