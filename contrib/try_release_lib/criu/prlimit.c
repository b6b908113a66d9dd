/* For CRIU on a machine whose root lacks CAP_SYS_RESOURCE, as that of a container does: the kernel tells nobody else the limits of
 * another user's process by prlimit64, but /proc tells them to all. CRIU makes that call by syscall(2); this stands before the C
 * library's (LD_PRELOAD). Limits are only read so: a call that would change those of another process fails, as before. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { ARGUMENTS = 6, NAME_WIDTH = 26, LINE_BYTES = 256 };

static rlim64_t number_of(const char *word)
{
    unsigned long long value = 0;
    return strcmp(word, "unlimited") == 0 || sscanf(word, "%llu", &value) != 1 ? RLIM64_INFINITY : value;
}

/* The file has a head, and a line for each limit in the order of their numbers. */
static int read_limit(int pid, int resource, struct rlimit64 *limit)
{
    char path[64], line[LINE_BYTES], soft[32], hard[32];
    snprintf(path, sizeof path, "/proc/%d/limits", pid);
    FILE *file = fopen(path, "re");
    int found = 0;
    for (int number = -1; file != NULL && number <= resource && fgets(line, sizeof line, file) != NULL; number++)
        found = number == resource && strlen(line) > NAME_WIDTH && sscanf(line + NAME_WIDTH, "%31s %31s", soft, hard) == 2;
    if (file != NULL)
        fclose(file);
    if (found)
        *limit = (struct rlimit64){number_of(soft), number_of(hard)};
    return found ? 0 : -1;
}

long syscall(long number, ...)
{
    static long (*libc_syscall)(long, ...);
    long words[ARGUMENTS];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < ARGUMENTS; i++)
        words[i] = va_arg(arguments, long);
    va_end(arguments);
    if (libc_syscall == NULL)
        libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long result = libc_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
    if (result == -1 && errno == EPERM && number == SYS_prlimit64 && words[2] == 0 && words[3] != 0)
        result = read_limit((int)words[0], (int)words[1], (struct rlimit64 *)words[3]);
    return result;
}
