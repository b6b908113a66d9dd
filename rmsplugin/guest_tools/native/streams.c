#define _GNU_SOURCE

#include "client.h"
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_WRITE = 4096 }; /* so much a pipe takes at once when poll says that it can be written to */

static const char *const stream_names[] = {"stdin", "stdout", "stderr"};

/* ---- where streams go ---- */

static bool is_per_task(const char *pattern)
{
    if (strchr(pattern, '\\') != NULL)
        return false;
    for (const char *at = pattern; (at = strchr(at, '%')) != NULL;) {
        at++;
        at += strspn(at, "0123456789");
        if (*at != 0 && strchr("tnN", *at) != NULL)
            return true;
        at += *at != 0;
    }
    return false;
}

/* A file of srun's own. */
static int open_file(const struct client *client, const char *pattern, int stream)
{
    struct plan plan = {.job_id = client->vjob.job_id, .step = client->step};
    plan.name = client->vjob.names[client->vjob.index];
    plan.user = getenv("USER") != NULL ? getenv("USER") : "";
    plan.job_name = client->options.job_name != NULL ? (char *)client->options.job_name : "";
    char *name = file_name(pattern, &plan, 0);
    int flags = stream == 0 ? O_RDONLY : O_WRONLY | O_CREAT | (client->options.append ? O_APPEND : O_TRUNC);
    int fd = open(name, flags | O_CLOEXEC, 0666);
    free(name);
    if (fd < 0)
        error_exit(1, "Could not open %s file: %s", stream_names[stream], strerror(errno));
    return fd;
}

/* Returns the file descriptor at srun's side. */
static int choose(struct client *client, int stream)
{
    struct stream *chosen = &client->streams[stream];
    const char *given = client->options.files[stream];
    *chosen = (struct stream){OVER_SRUN, ALL_TASKS, NULL};
    if (given == NULL || strcasecmp(given, "all") == 0 || strcmp(given, "-") == 0)
        return stream;
    if (strcasecmp(given, "none") == 0) {
        chosen->kind = NOWHERE;
        return -1;
    }
    char *end;
    unsigned long task = strtoul(given, &end, 10);
    if (*given >= '0' && *given <= '9' && *end == 0 && task < client->layout.ntasks) {
        chosen->task = (uint32_t)task;
        return stream;
    }
    if (is_per_task(given)) {
        chosen->kind = PER_TASK;
        chosen->pattern = (char *)given;
        return -1;
    }
    return open_file(client, given, stream);
}

static void sink_open(struct sink *sink, int fd)
{
    struct stat facts;
    sink->fd = fd;
    sink->file = fd >= 0 && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

void streams_choose(struct client *client)
{
    const char **files = client->options.files;
    /* Errors go where the output goes, unless they are told to go elsewhere. */
    bool together = files[1] != NULL && (files[2] == NULL || strcmp(files[1], files[2]) == 0);
    client->input = choose(client, 0);
    int output = choose(client, 1);
    sink_open(&client->sinks[0], output);
    if (together && client->streams[1].kind == OVER_SRUN && output > 2) {
        client->streams[2] = client->streams[1];
        sink_open(&client->sinks[1], output);
        return;
    }
    if (files[2] == NULL && client->streams[1].kind != OVER_SRUN)
        files[2] = files[1];
    sink_open(&client->sinks[1], choose(client, 2));
    int last = (int)client->layout.ntasks - 1;
    for (client->label_width = 1; last >= 10; last /= 10)
        client->label_width++;
}

struct node *node_of_task(struct client *client, uint32_t task)
{
    return &client->nodes[client->layout.node_of[task]];
}

/* ---- input ---- */

static bool gets_input(struct client *client, struct node *node)
{
    uint32_t task = client->streams[0].task;
    return !node->done && (task == ALL_TASKS || node == node_of_task(client, task));
}

bool streams_want_input(const struct client *client)
{
    if (client->input < 0 || buffer_size(&client->hub.output) > WINDOW)
        return false;
    for (uint32_t i = 0; i < client->layout.vm_count; i++)
        if (!client->nodes[i].done && client->nodes[i].input_unread >= WINDOW)
            return false;
    return true;
}

void streams_read_input(struct client *client)
{
    char data[CHUNK];
    ssize_t got = read(client->input, data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size_t size = got > 0 ? (size_t)got : 0;
    for (uint32_t i = 0; i < client->layout.vm_count; i++) {
        struct node *node = &client->nodes[i];
        if (!gets_input(client, node))
            continue;
        send_data(&client->hub, INPUT, (uint16_t)node->vm, client->step, 0, data, size);
        node->input_unread += (uint32_t)size;
    }
    if (size == 0)
        client->input = -1;
}

/* ---- output ---- */

static void add_labelled(struct client *client, struct sink *sink, const struct frame *frame)
{
    char *label = formatted("%*u: ", client->label_width, frame->task);
    const char *at = frame->data, *end = frame->data + frame->size;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((line != NULL ? line + 1 : end) - at);
        buffer_text(&sink->waiting, label);
        buffer_append(&sink->waiting, at, size);
        if (line == NULL)
            buffer_text(&sink->waiting, "\n");
        at += size;
    }
    free(label);
}

static void sink_flush(struct client *client, struct sink *sink)
{
    while (buffer_size(&sink->waiting) > 0 && !sink->broken) {
        struct pollfd polled = {sink->fd, POLLOUT, 0};
        size_t size = buffer_size(&sink->waiting);
        if (!sink->file && poll(&polled, 1, 0) <= 0)
            return;
        if (!sink->file && size > PIPE_WRITE)
            size = PIPE_WRITE;
        ssize_t put = write(sink->fd, buffer_data(&sink->waiting), size);
        if (put >= 0) {
            buffer_taken(&sink->waiting, (size_t)put);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            sink->broken = true;
            if (errno != EPIPE)
                error_message("Could not write the tasks' output: %s", strerror(errno));
            if (client->highest == 0)
                client->highest = 1;
            client_end(client, 2, "");
        }
    }
    if (sink->broken)
        buffer_free(&sink->waiting);
}

void streams_output(struct client *client, const struct frame *frame)
{
    struct sink *sink = &client->sinks[frame->type == ERRORS];
    if (frame->task >= client->layout.ntasks)
        return;
    node_of_task(client, frame->task)->output_owed += frame->size;
    if (sink->broken || sink->fd < 0)
        return;
    if (client->options.label)
        add_labelled(client, sink, frame);
    else
        buffer_append(&sink->waiting, frame->data, frame->size);
    sink_flush(client, sink);
}

bool streams_waiting(const struct client *client)
{
    return buffer_size(&client->sinks[0].waiting) + buffer_size(&client->sinks[1].waiting) > 0;
}

void streams_flush(struct client *client)
{
    sink_flush(client, &client->sinks[0]);
    sink_flush(client, &client->sinks[1]);
    if (buffer_size(&client->sinks[0].waiting) + buffer_size(&client->sinks[1].waiting) > WINDOW)
        return;
    for (uint32_t i = 0; i < client->layout.vm_count; i++) {
        struct node *node = &client->nodes[i];
        if (node->output_owed > 0 && !node->done)
            send_number(&client->hub, OUTPUT_TAKEN, (uint16_t)node->vm, client->step, node->output_owed);
        node->output_owed = 0;
    }
}
