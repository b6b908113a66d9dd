/* What ends a step before its tasks do: signals to srun, and limits of time. */

#define _GNU_SOURCE

#include "client.h"

#include "messages.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    WITHOUT_SLURM_S = 120, /* past a step's limit, if Slurm does not see to it */
    INTERRUPT_MS = 400,    /* from the tasks' SIGINT to their SIGKILL, if both are sent */
};

/* After two Ctrl-C: SIGKILL, after the tasks have had SIGINT. */
static void force_termination(struct client *client)
{
    if (client->cancelled) {
        message("job abort in progress");
        return;
    }
    message("forcing job termination");
    client->cancelled = true;
    client_say_aborted(client);
    client->kill_ms = client_now_ms() + INTERRUPT_MS;
}

static void interrupted(struct client *client)
{
    int64_t now = client_now_ms();
    bool again = client->interrupted_ms != 0 && now - client->interrupted_ms <= 1000;
    if (again || client->options.quit_on_interrupt || client->options.no_abort_status) {
        message("sending Ctrl-C to StepId=%s", client->id);
        client_to_all(client, SIGNAL, SIGINT);
    }
    if (again || client->options.quit_on_interrupt) {
        force_termination(client);
        return;
    }
    client->interrupted_ms = now;
    if (client->options.no_abort_status || client->cancelled)
        return;
    message("interrupt (one more within 1 sec to abort)");
    exits_status(client);
}

/* Whether a process of ours has sent it: the control program, which passes on Slurm's signals to the job, or a step
 * of which this srun is a task. */
static bool sent_by_us(pid_t sender)
{
    char path[32], theirs[PATH_MAX] = "", ours[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/%d/exe", (int)sender);
    return readlink(path, theirs, sizeof theirs - 1) > 0 && readlink("/proc/self/exe", ours, sizeof ours - 1) > 0 &&
           strcmp(theirs, ours) == 0;
}

/* For a job that Slurm ends: its tasks get SIGTERM, which natively comes from Slurm itself, and as much time as natively
 * before SIGKILL. If any other process ends srun, srun kills its tasks. */
static void terminated(struct client *client, pid_t sender)
{
    bool first = !client->ending;
    message("forcing job termination");
    client_say_aborted(client);
    client->forced = !sent_by_us(sender);
    client_end(client, first && !client->forced ? client->vjob.kill_wait : 0, "");
}

void client_take_signal(struct client *client, int number, pid_t sender)
{
    switch (number) {
    case SIGINT: interrupted(client); break;
    case SIGQUIT: message("Quit"); /* fall through */
    case SIGTERM:
    case SIGHUP: terminated(client, sender); break;
    default: client_to_all(client, SIGNAL, (uint32_t)number);
    }
}

void client_check_times(struct client *client)
{
    const struct options *options = &client->options;
    int64_t now = client_now_ms();
    if (client->kill_ms != 0 && now >= client->kill_ms) {
        client->kill_ms = 0;
        client_end(client, 0, "");
    }
    if (client->ending)
        return;
    /* Slurm ends the step then, by its shadow. */
    if (options->request.limit_s > 0 &&
        now - client->started_ms >= ((int64_t)options->request.limit_s + WITHOUT_SLURM_S) * 1000)
        client_end(client, client->vjob.kill_wait, " DUE TO TIME LIMIT");
    else if (options->wait_s > 0 && client->first_end_ms != 0 &&
             now - client->first_end_ms >= (int64_t)options->wait_s * 1000) {
        message("First task exited %us ago", options->wait_s);
        exits_status(client);
        client_say_terminating(client);
        client_end(client, 0, "");
        client_say_aborted(client);
        client->forced = true;
    }
}

int client_until_next(const struct client *client)
{
    if (client->kill_ms != 0)
        return INTERRUPT_MS;
    return !client->ending && (client->options.request.limit_s > 0 || client->options.wait_s > 0) ? 200 : -1;
}
