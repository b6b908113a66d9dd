// rmsplugin-job GEOMETRY SCRIPT ARGS...: what Slurm starts on a front in place of a vjob's script, as the job's user.
//
// The user's environment tells the loader and Python to run code of his choice before anything else. This program is
// static, so that no loader heeds it. It lays the environment aside, for the script in the VM, and becomes the wrapper:
// the Python beside it, isolated, with Slurm's own variables and no others (docs/decisions/0065-*.md).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

enum { CANNOT_RUN = 1, FIRST_FREE = 10, FIXED_WORDS = 4 };

static void give_up(const char *what)
{
    dprintf(2, "rmsplugin-job: %s: %s\n", what, strerror(errno));
    _exit(CANNOT_RUN);
}

static void write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            give_up("the environment cannot be laid aside");
        data += written;
        size -= (size_t)written;
    }
}

// The environment as /proc/PID/environ would have it, in a file that the programs to come inherit.
static int lay_aside(void)
{
    int made = memfd_create("environment", 0);
    if (made < 0)
        give_up("the environment cannot be laid aside");
    // Out of the way of descriptors that have a meaning, if the user's limit (ulimit -n) leaves a place there.
    int fd = fcntl(made, F_DUPFD, FIRST_FREE);
    if (fd < 0)
        fd = made;
    else
        close(made);
    for (char **entry = environ; *entry; entry++)
        write_all(fd, *entry, strlen(*entry) + 1);
    return fd;
}

// Slurm's variables, and where the others are.
static char **own_environment(int fd)
{
    static char where[64];
    size_t count = 0;
    while (environ[count])
        count++;
    char **own = calloc(count + 2, sizeof *own);
    if (!own)
        give_up("the environment");
    size_t kept = 0;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "SLURM_", 6) == 0)
            own[kept++] = *entry;
    snprintf(where, sizeof where, "RMSPLUGIN_ENVIRONMENT=%d", fd);
    own[kept] = where;
    return own;
}

// python3 in the directory where this program lies, whatever links led here.
static char *interpreter(void)
{
    static char path[4096 + 16];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    if (length <= 0 || length >= 4096)
        give_up("/proc/self/exe");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "python3");
    return path;
}

int main(int argc, char **argv)
{
    char *python = interpreter();
    size_t given = argc > 1 ? (size_t)argc - 1 : 0;
    char **words = calloc(FIXED_WORDS + given + 1, sizeof *words);
    if (!words)
        give_up("the command line");
    words[0] = python;
    words[1] = "-I";
    words[2] = "-m";
    words[3] = "rmsplugin.wrapper.main";
    if (given)
        memcpy(words + FIXED_WORDS, argv + 1, given * sizeof *words);
    char **own = own_environment(lay_aside());
    execve(python, words, own);
    give_up(python);
}
