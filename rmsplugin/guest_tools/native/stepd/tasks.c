#define _GNU_SOURCE

#include "tasks.h"

#include "base/names.h"
#include "protocol/patterns.h"
#include "task_environment.h"
#include "task_scripts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;

static void set_limits(const struct plan *plan)
{
    for (int i = 0; i < LIMITS; i++) {
        struct rlimit limit;
        rlim_t soft = (rlim_t)(((uint64_t)plan->limits[i][0] << 32) | plan->limits[i][1]);
        if (getrlimit(i, &limit) != 0)
            continue;
        limit.rlim_cur = limit.rlim_max != RLIM_INFINITY && (soft == RLIM_INFINITY || soft > limit.rlim_max)
                             ? limit.rlim_max
                             : soft;
        setrlimit(i, &limit);
    }
}

static void set_environment(const struct plan *plan, uint32_t local)
{
    task_environment_of(plan, local);
    struct buffer numbers = {0};
    for (uint32_t i = 0; i < plan->local; i++) {
        char *word = formatted("%s%u", i > 0 ? "," : "", plan->tasks[i]);
        buffer_text(&numbers, word);
        free(word);
    }
    buffer_append(&numbers, "", 1);
    setenv("SLURM_GTIDS", numbers.data, 1);
    task_number("SLURM_TASK_PID", (uint32_t)getpid());
}

/* The path where Slurm finds a program: from the directory of the task if it begins with a dot, else the first file in PATH
 * that is no directory, else the text as given. */
static char *path_of(const char *program)
{
    char *path = getenv("PATH"), *here;
    struct stat facts;
    if (*program == '/')
        return (char *)program;
    if (*program == '.') {
        here = getcwd(NULL, 0);
        return formatted("%s/%s", here != NULL ? here : "", program);
    }
    char *rest = path != NULL ? copied(path) : NULL, *directory;
    while ((directory = strsep(&rest, ":")) != NULL) {
        char *found = formatted("%s/%s", directory, program);
        if (*directory != 0 && stat(found, &facts) == 0 && !S_ISDIR(facts.st_mode))
            return found;
        free(found);
    }
    return (char *)program;
}

/* The interpreter of a script; NULL: it names none. */
static char *interpreter_of(const char *path)
{
    char line[256] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file >= 0 ? read(file, line, sizeof line - 1) : -1;
    if (file >= 0)
        close(file);
    if (size < 3 || strncmp(line, "#!", 2) != 0)
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return copied(line + 2);
}

static void run(const struct plan *plan, char **words)
{
    char *path = path_of(words[0]);
    execve(path, words, environ);
    int error = errno;
    char *interpreter = error == ENOENT ? interpreter_of(path) : NULL;
    /* To the task's standard error, as slurmstepd does. */
    if (interpreter != NULL)
        dprintf(STDERR_FILENO, "slurmstepd-%s: error: execve(): bad interpreter(%s): %s\n", plan->name, interpreter,
                strerror(error));
    else
        dprintf(STDERR_FILENO, "slurmstepd-%s: error: execve(): %s: %s\n", plan->name, path, strerror(error));
    _exit(error);
}

static void become_task(const struct plan *plan, uint32_t local, const int streams[3])
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the step's own process may be killed */
    signals_as_usual();
    for (int stream = 0; stream < 3; stream++)
        dup2(streams[stream], stream); /* those are above 2: the step has all three open */
    set_environment(plan, local);
    task_prolog(plan);
    set_limits(plan);
    run(plan, plan->commands[plan->command_of[local]].words);
}

/* The terminal of --unbuffered for the tasks' standard output, so that their C library does not buffer. */
static bool make_terminal(int ends[2])
{
    struct termios settings;
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    if (ours < 0)
        return false;
    int theirs = grantpt(ours) == 0 && unlockpt(ours) == 0 && ptsname_r(ours, name, sizeof name) == 0
                     ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
                     : -1;
    if (theirs < 0 || tcgetattr(theirs, &settings) != 0) {
        close(ours);
        if (theirs >= 0)
            close(theirs);
        return false;
    }
    cfmakeraw(&settings);
    tcsetattr(theirs, TCSANOW, &settings);
    ends[0] = ours;
    ends[1] = theirs;
    return true;
}

/* The two ends of a stream that goes through srun. Without terminals, a pipe has to do. */
static bool make_ends(const struct plan *plan, int stream, int *ours, int *theirs)
{
    int ends[2];
    bool made = (stream == 1 && plan->unbuffered && make_terminal(ends)) || pipe2(ends, O_CLOEXEC) == 0;
    if (!made)
        return false;
    *ours = ends[stream == 0];
    *theirs = ends[stream != 0];
    fcntl(*ours, F_SETFL, O_NONBLOCK);
    return true;
}

static bool same_file(const struct plan *plan)
{
    return plan->streams[1].kind == PER_TASK && plan->streams[2].kind == PER_TASK &&
           strcmp(plan->streams[1].pattern, plan->streams[2].pattern) == 0;
}

static int open_file(const struct plan *plan, uint32_t task, int stream, char **problem)
{
    char *name = pattern_of_task(plan->streams[stream].pattern, plan, task);
    int flags = stream == 0 ? O_RDONLY : O_WRONLY | O_CREAT | (plan->append ? O_APPEND : O_TRUNC);
    int file = open(name, flags | O_CLOEXEC, 0666);
    if (file < 0)
        *problem = formatted("Could not open %s: %s", name, strerror(errno));
    free(name);
    return file;
}

static bool open_streams(const struct plan *plan, uint32_t task, int ours[3], int theirs[3], char **problem)
{
    for (int stream = 0; stream < 3; stream++) {
        const struct stream *wanted = &plan->streams[stream];
        if (wanted->kind == PER_TASK)
            theirs[stream] = stream == 2 && same_file(plan) ? fcntl(theirs[1], F_DUPFD_CLOEXEC, 3)
                                                            : open_file(plan, task, stream, problem);
        else if (wanted->kind == NOWHERE || (wanted->task != ALL_TASKS && wanted->task != task))
            theirs[stream] = open("/dev/null", O_RDWR | O_CLOEXEC);
        else if (!make_ends(plan, stream, &ours[stream], &theirs[stream]))
            theirs[stream] = -1;
        if (theirs[stream] >= 0)
            continue;
        if (*problem == NULL)
            *problem = formatted("the task's streams cannot be made: %s", strerror(errno));
        return false;
    }
    return true;
}

bool task_start(const struct plan *plan, uint32_t local, struct task *task, char **problem)
{
    int theirs[3] = {-1, -1, -1}, ours[3] = {-1, -1, -1};
    task->number = plan->tasks[local];
    if (open_streams(plan, task->number, ours, theirs, problem)) {
        task->process = fork();
        if (task->process == 0)
            become_task(plan, local, theirs);
        if (task->process < 0)
            *problem = formatted("fork: %s", strerror(errno));
        if (local == 0 && *plan->task_epilog != 0)
            task->errors = fcntl(theirs[2], F_DUPFD_CLOEXEC, 3);
    }
    for (int stream = 0; stream < 3; stream++)
        if (theirs[stream] >= 0)
            close(theirs[stream]);
    task->input = ours[0];
    task->output[0] = ours[1];
    task->output[1] = ours[2];
    return task->process > 0;
}
