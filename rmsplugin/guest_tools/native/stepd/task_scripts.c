#define _GNU_SOURCE

#include "task_scripts.h"

#include "task_environment.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_RUN = 127, PAUSE_US = 10000 };

extern char **environ;

/* As slurmstepd: to the standard error of a task. */
static void say(const struct plan *plan, int errors, const char *text)
{
    dprintf(errors, "slurmstepd-%s: error: %s\n", plan->name, text);
}

static void say_status(const struct plan *plan, int errors, const char *script, int status)
{
    char *text = formatted("%s failed status=%d", script, status);
    say(plan, errors, text);
    free(text);
}

static bool can_run(const char *path)
{
    return *path == '/' && access(path, R_OK | X_OK) == 0;
}

/* Processes that the script has left behind in its process group. */
static void end_group(pid_t process)
{
    if (kill(-process, SIGTERM) == 0)
        usleep(PAUSE_US);
    kill(-process, SIGKILL);
}

/* Returns only on failure, with errno. */
static void become_script(const char *path, int input, int output, int errors)
{
    char *words[] = {(char *)path, NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(input, 0);
    dup2(output, 1);
    dup2(errors, 2);
    execv(path, words);
}

/* ---- the prolog ---- */

/* The text without the white space before and after it. */
static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t size = strlen(text); size > 0 && isspace((unsigned char)text[size - 1]); size--)
        text[size - 1] = 0;
    return text;
}

static void obey_export(char *assignment)
{
    char *value = strchr(assignment, '=');
    if (value == NULL)
        return;
    *value++ = 0;
    setenv(trimmed(assignment), value, 1);
}

static void obey_print(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    dprintf(STDOUT_FILENO, "%s\n", text);
}

/* Obey a line of the prolog's output; other lines have no effect. */
static void obey_line(char *line)
{
    if (strncmp(line, "print ", 6) == 0)
        obey_print(line + 6);
    else if (strncmp(line, "export ", 7) == 0)
        obey_export(line + 7);
    else if (strncmp(line, "unset ", 6) == 0)
        unsetenv(trimmed(line + 6));
}

static void obey_output(char *text)
{
    for (char *line; (line = strsep(&text, "\n")) != NULL;)
        obey_line(line);
}

/* Run it to its end; its output, on both streams, is added to `output`. Returns its status as of waitpid. */
static int run_prolog(const char *path, struct buffer *output)
{
    int ends[2], status = 0;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return CANNOT_RUN << 8;
    pid_t process = fork();
    if (process == 0) {
        become_script(path, nothing, ends[1], ends[1]);
        _exit(CANNOT_RUN);
    }
    close(nothing);
    close(ends[1]);
    if (process < 0)
        return CANNOT_RUN << 8;
    ssize_t got;
    while ((got = read(ends[0], buffer_room(output, CHUNK), CHUNK)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            buffer_added(output, (size_t)got);
    close(ends[0]);
    while (waitpid(process, &status, 0) < 0 && errno == EINTR)
        ;
    end_group(process);
    return status;
}

static void say_why_not(const struct plan *plan)
{
    const char *path = plan->task_prolog;
    char *text = *path != '/' ? formatted("run_command: user task_prolog is not fully qualified pathname (%s)", path)
                              : formatted("run_command: user task_prolog can not be executed (%s) %s", path,
                                          strerror(errno));
    say(plan, STDERR_FILENO, text);
    free(text);
}

static void say_not_normal(const struct plan *plan, const char *reason)
{
    char *text = formatted("user task_prolog did not exit normally. reason: %s", reason);
    say(plan, STDERR_FILENO, text);
    free(text);
}

static _Noreturn void fail(const struct plan *plan, int code)
{
    say_status(plan, STDERR_FILENO, "--task-prolog", code);
    _exit(code);
}

void task_prolog(const struct plan *plan)
{
    struct buffer output = {0};
    if (*plan->task_prolog == 0)
        return;
    setenv("SLURM_SCRIPT_CONTEXT", "prolog_task", 1);
    if (!can_run(plan->task_prolog)) {
        say_why_not(plan);
        say_not_normal(plan, "Run command failed - configuration error");
        fail(plan, 1);
    }
    int status = run_prolog(plan->task_prolog, &output);
    buffer_append(&output, "", 1);
    if (!WIFEXITED(status)) {
        say_not_normal(plan, buffer_data(&output));
        fail(plan, 1);
    }
    obey_output(buffer_data(&output));
    buffer_free(&output);
    if (WEXITSTATUS(status) != 0)
        fail(plan, WEXITSTATUS(status));
}

/* ---- the epilog ---- */

pid_t task_epilog_start(const struct plan *plan, uint32_t local, int errors)
{
    if (*plan->task_epilog == 0)
        return 0;
    if (!can_run(plan->task_epilog)) {
        char *text = formatted("Could not run user task_epilog [%s]: access denied", plan->task_epilog);
        say(plan, errors, text);
        free(text);
        say_status(plan, errors, "TaskEpilog", -1);
        return 0;
    }
    pid_t process = fork();
    if (process != 0)
        return process > 0 ? process : 0;
    signals_as_usual();
    task_environment_of(plan, local);
    setenv("SLURM_SCRIPT_CONTEXT", "epilog_task", 1);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    become_script(plan->task_epilog, nothing, nothing, errors);
    char *text = formatted("execve(%s): %s", plan->task_epilog, strerror(errno));
    say(plan, STDERR_FILENO, text);
    _exit(CANNOT_RUN);
}

void task_epilog_stop(pid_t process)
{
    kill(-process, SIGKILL);
}

void task_epilog_ended(const struct plan *plan, pid_t process, int status, int errors)
{
    task_epilog_stop(process); /* with all processes that it has left behind */
    if (status != 0)
        say_status(plan, errors, "TaskEpilog", status);
}
