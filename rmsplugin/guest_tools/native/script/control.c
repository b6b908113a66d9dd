/* rmsplugin-guest control: obey lines of standard input until that ends, and say `ok` to each. A last line without its
 * end, as a breaking connection may leave one, is left out. */

#include "guest.h"

#include "base/files.h"
#include "base/processes.h"
#include "base/run.h"
#include "protocol/hub_connect.h"
#include "script.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tell the relay, and wake it if it waits for that. */
static bool tell_relay(const char *stream, const char *offset)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "%s\n", offset);
    /* Not truncated first: a process that reads it meanwhile finds one of the two numbers. */
    int fd = open(path_to(path, VJOB_OUTPUT, stream, ".acked"), O_WRONLY | O_CLOEXEC);
    bool told = fd >= 0 && pwrite(fd, line, (size_t)length, 0) == length && ftruncate(fd, length) == 0;
    close(fd);
    if (told && exists(path_to(path, VJOB_OUTPUT, stream, ".full"))) {
        int wake = open(path_to(path, VJOB_OUTPUT, stream, ".wake"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (wake >= 0) /* a full pipe wakes the relay, too */
            (void)!write(wake, "\n", 1);
        close(wake);
    }
    return told;
}

static bool acknowledge(const char *stream, const char *offset, const char *size)
{
    char name[PATH_BYTES], line[LINE_BYTES];
    off_t number;
    if (!is_stream(stream) || !parse_number(offset, &number) || !parse_number(size, &number))
        return false;
    snprintf(name, sizeof name, "ack.%s", stream);
    snprintf(line, sizeof line, "%s %s %s\n", stream, offset, size);
    return keep(VJOB_STATE, name, line) && tell_relay(stream, offset);
}

static bool signal_one(const struct process *process, void *number)
{
    kill(process->pid, *(int *)number);
    return true;
}

static bool kill_script(const char *word, bool all)
{
    off_t value;
    if (!parse_number(word, &value) || value < 1 || value >= NSIG)
        fail(2, "no such signal: %s", word);
    if (script_ended())
        return true;
    pid_t pid = script_pid();
    if (pid <= 0)
        fail(1, "the script was not started");
    int number = (int)value;
    if (all)
        session_each(pid, signal_one, &number);
    else
        kill(pid, number);
    return true;
}

/* A step that has ended meanwhile gets no signal, and that is no failure. */
static bool signal_step(const char *step, const char *number)
{
    off_t step_number, value;
    if (!parse_number(step, &step_number) || !parse_number(number, &value) || value < 1 || value >= NSIG)
        fail(2, "no such step or signal: %s %s", step, number);
    hub_signal_step((uint32_t)step_number, (int)value);
    return true;
}

static bool obey(char *line)
{
    char *words[4] = {"", "", "", ""}, *rest = line, *word;
    for (int count = 0; count < 4 && (word = strsep(&rest, " \t\n")) != NULL;)
        if (*word != '\0')
            words[count++] = word;
    if (strcmp(words[0], "ack") == 0)
        return acknowledge(words[1], words[2], words[3]);
    if (strcmp(words[0], "kill") == 0)
        return kill_script(words[1], strcmp(words[2], "all") == 0);
    if (strcmp(words[0], "step") == 0)
        return signal_step(words[1], words[2]);
    fail(2, "no such verb: %s", words[0]);
}

int control(void)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin) != NULL && strchr(line, '\n') != NULL) {
        leave_if_superseded();
        if (!obey(line))
            fail(1, "%.*s failed", (int)strcspn(line, " \n"), line);
        if (!write_all(STDOUT_FILENO, "ok\n", 3))
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
