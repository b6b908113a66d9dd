/* Become the user's script, by the files that the wrapper has put here; called once, in a session of its own (start.c). */

#include "script.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/texts.h"
#include "base/words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CANNOT_RUN = 1 };

/* In Slurm's words, which users, and programs that read their output, know; the exit code is the error's number, as there. */
static void slurm_error(const char *format, ...)
{
    char name[256] = "";
    va_list arguments;
    gethostname(name, sizeof name - 1);
    fprintf(stderr, "slurmstepd-%s: error: ", name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* Soft limits as at submission, as far as this VM allows; in the units of a shell's ulimit. */
static void set_limits(void)
{
    static const struct {
        char flag;
        int resource;
        rlim_t unit;
    } known[] = {
        {'t', RLIMIT_CPU, 1},     {'f', RLIMIT_FSIZE, 512},    {'d', RLIMIT_DATA, 1024}, {'s', RLIMIT_STACK, 1024},
        {'c', RLIMIT_CORE, 512},  {'l', RLIMIT_MEMLOCK, 1024}, {'n', RLIMIT_NOFILE, 1},  {'p', RLIMIT_NPROC, 1},
    };
    char *rest = text_of_file(VJOB_JOB "/limits").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            struct rlimit limit;
            off_t number;
            if (line[0] != known[i].flag || line[1] != ' ' || getrlimit(known[i].resource, &limit) != 0)
                continue;
            rlim_t wanted = parse_number(line + 2, &number) ? (rlim_t)number * known[i].unit : RLIM_INFINITY;
            limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max ? wanted : limit.rlim_max;
            setrlimit(known[i].resource, &limit);
        }
}

static void open_as(int fd, const char *path, int flags)
{
    int file = open(path, flags);
    if (file < 0 || dup2(file, fd) != fd)
        _exit(CANNOT_RUN);
    close(file);
}

static void set_streams(void)
{
    char merged[LINE_BYTES];
    open_as(1, VJOB_OUTPUT "/stdout.pipe", O_WRONLY);
    if (read_line(VJOB_JOB "/merged", merged) && strcmp(merged, "1") == 0)
        dup2(1, 2);
    else
        open_as(2, VJOB_OUTPUT "/stderr.pipe", O_WRONLY);
    if (exists(VJOB_JOB "/stdin"))
        open_as(0, VJOB_JOB "/stdin", O_RDONLY);
}

static void enter_directory(void)
{
    const char *directory = text_of_file(VJOB_JOB "/cwd").bytes;
    if (chdir(directory) == 0)
        return;
    slurm_error("couldn't chdir to `%s': %s: going to /tmp instead", directory, strerror(errno));
    if (chdir("/tmp") != 0)
        _exit(CANNOT_RUN);
}

static void set_umask(void)
{
    char mask[LINE_BYTES];
    if (read_line(VJOB_JOB "/umask", mask))
        umask((mode_t)strtoul(mask, NULL, 8) & 0777);
}

/* The script's path on the front, if `put` could put it there. */
static const char *script_path(void)
{
    char *rest = text_of_file(VJOB_JOB "/path").bytes;
    const char *path = next_line(&rest);
    return path != NULL ? path : VJOB_JOB "/slurm_script";
}

/* Ends the program if the script's first line names no program. */
static void check_interpreter(const char *script)
{
    struct stat status;
    char *rest = text_of_file(script).bytes, *line = next_line(&rest);
    if (line == NULL || strncmp(line, "#!", 2) != 0)
        return;
    const char *program = field_of(line + 2, ' ', 1);
    if (stat(program, &status) != 0) {
        slurm_error("execve(): bad interpreter(%s): No such file or directory", line + 2);
        _exit(ENOENT);
    }
    if (S_ISDIR(status.st_mode) || access(program, X_OK) != 0) {
        slurm_error("execve(): %s: Permission denied", script);
        _exit(EACCES);
    }
}

static char **list_of(char *first)
{
    char **list = allocate(2, sizeof *list);
    list[0] = first;
    return list;
}

void run_script(void)
{
    set_streams();
    enter_directory();
    const char *script = script_path();
    check_interpreter(script);
    set_umask();
    char **words = words_of(VJOB_JOB "/args", list_of(copied(script)));
    char **environment = words_of(VJOB_JOB "/env", list_of(formatted("SLURM_TASK_PID=%d", (int)getpid())));
    set_limits();
    execve(script, words, environment);
    int reason = errno;
    slurm_error("execve(): %s: %s", script, strerror(reason));
    _exit(reason);
}
