#define _GNU_SOURCE

#include "client.h"
#include "messages.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void tell(const struct client *client, int status, const char *vm, const char *tasks)
{
    if (WIFSIGNALED(status) && (!client->cancelled || client->options.verbose > 0))
        (client->cancelled ? message : error_message)("%s: %s: %s%s", vm, tasks, signal_words(WTERMSIG(status)),
                                                      WCOREDUMP(status) ? " (core dumped)" : "");
    else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        error_message("%s: %s: Exited with exit code %d", vm, tasks, WEXITSTATUS(status));
    else if (WIFEXITED(status) && client->options.verbose > 0)
        message("%s: %s: Completed", vm, tasks);
}

static char *named(const uint32_t *tasks, uint32_t count)
{
    char *numbers = ranges(tasks, count);
    char *text = formatted("%s %s", count == 1 ? "task" : "tasks", numbers);
    free(numbers);
    return text;
}

static void count_exit(struct client *client, int status)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code > client->highest)
        client->highest = code;
    client->terminated = client->terminated ||
                         (WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL));
    if (client->first_end_ms == 0)
        client->first_end_ms = client_now_ms();
    if (code == 0 || !client->options.kill_on_bad_exit || client->ending)
        return;
    client_say_terminating(client);
    client_end(client, client->vjob.kill_wait, "");
}

void exits_take(struct client *client, struct node *node, const struct frame *frame)
{
    struct reader reader = reader_of(frame);
    int status = (int)get_number(&reader);
    uint32_t count = 0;
    uint32_t *tasks = allocate(frame->size / 4, sizeof *tasks);
    while (!reader.bad && reader.at < reader.end) {
        uint32_t task = get_number(&reader);
        if (reader.bad || task >= client->layout.ntasks)
            continue;
        tasks[count++] = task;
        client->tasks[task] = status == 0 ? EXITED_WELL : EXITED_BADLY;
    }
    /* Slurm counts each component's tasks from 0 here. */
    for (uint32_t i = 0; i < count; i++)
        tasks[i] -= tasks[i] < node->component->first_task ? 0 : node->component->first_task;
    char *text = named(tasks, count);
    tell(client, status, client->vjob.names[node->vm], text);
    free(text);
    free(tasks);
    count_exit(client, status);
}

void exits_node_failed(struct client *client, struct node *node, const char *why)
{
    error_message("Node failure on %s: %s", client->vjob.names[node->vm], why);
    for (uint32_t i = 0; i < node->count; i++)
        if (client->tasks[node->tasks[i]] == RUNNING)
            client->tasks[node->tasks[i]] = EXITED_BADLY;
    if (client->highest == 0)
        client->highest = 1;
    if (client->ending)
        return;
    client_say_aborted(client);
    client_end(client, 2, " DUE TO NODE FAILURE");
}

void exits_status(const struct client *client)
{
    static const char *const words[] = {"running", "exited", "exited abnormally"};
    uint32_t *tasks = allocate(client->layout.ntasks, sizeof *tasks);
    for (int state = RUNNING; state <= EXITED_BADLY; state++) {
        uint32_t count = 0;
        for (uint32_t task = 0; task < client->layout.ntasks; task++)
            if ((int)client->tasks[task] == state)
                tasks[count++] = task;
        if (count == 0)
            continue;
        char *text = named(tasks, count);
        message("StepId=%s %s: %s", client->id, text, words[state]);
        free(text);
    }
    free(tasks);
}
