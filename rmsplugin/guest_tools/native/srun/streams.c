#define _GNU_SOURCE

#include "protocol/patterns.h"
#include "client.h"
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_WRITE = 4096 }; /* a pipe takes so many bytes at once when poll says that it can be written to */

static const char *const stream_names[] = {"stdin", "stdout", "stderr"};

/* ---- where streams go ---- */

/* A file of srun's own. */
static int open_file(const struct component *component, const char *name, int stream)
{
    int flags = stream == 0 ? O_RDONLY : O_WRONLY | O_CREAT | (component->options.append ? O_APPEND : O_TRUNC);
    int fd = open(name, flags | O_CLOEXEC, 0666);
    if (fd < 0)
        error_exit(1, "Could not open %s file: %s", stream_names[stream], strerror(errno));
    return fd;
}

/* A name without its backslashes, each of which keeps all patterns from being replaced, as in Slurm. NULL: it has none. */
static char *without_backslashes(const char *given)
{
    if (strchr(given, '\\') == NULL)
        return NULL;
    char *name = copied(given), *to = name;
    for (const char *at = given; *at != 0; at++)
        if (*at != '\\')
            *to++ = *at;
    *to = 0;
    return name;
}

/* Slurm goes by the beginning of the word. */
static bool means_all(const char *given)
{
    return given == NULL || strncasecmp(given, "all", 3) == 0 || *given == '-';
}

static bool means_one_task(const char *given, const struct component *component, struct stream *chosen)
{
    char *end;
    unsigned long task = strtoul(given, &end, 10);
    if (*end != 0 || task >= component->ntasks)
        return false;
    chosen->task = component->first_task + (uint32_t)task;
    return true;
}

/* Returns the file descriptor at srun's end. */
static int choose(const struct client *client, struct component *component, int stream)
{
    struct stream *chosen = &component->streams[stream];
    const char *given = component->options.files[stream];
    *chosen = (struct stream){OVER_SRUN, ALL_TASKS, NULL};
    if (means_all(given) && stream == 0 && component->number > 0)
        chosen->kind = NOWHERE; /* the first component reads srun's input */
    if (means_all(given))
        return chosen->kind == NOWHERE ? -1 : stream;
    if (strcasecmp(given, "none") == 0) {
        chosen->kind = NOWHERE;
        return -1;
    }
    if (means_one_task(given, component, chosen))
        return stream;
    const struct pattern_facts facts = {client->vjob.job_id, client->step};
    bool per_task = false;
    char *name = without_backslashes(given), *quoted = name == NULL ? pattern_of_srun(given, &facts, &per_task) : NULL;
    if (per_task) {
        chosen->kind = PER_TASK;
        chosen->pattern = quoted;
        return -1;
    }
    return open_file(component, name != NULL ? name : pattern_unquoted(quoted), stream);
}

static struct sink *sink_of(struct client *client, int fd)
{
    struct stat facts;
    for (uint32_t i = 0; i < client->sink_count; i++)
        if (client->sinks[i]->fd == fd)
            return client->sinks[i];
    if (fd < 0)
        return NULL;
    struct sink *sink = allocate(1, sizeof *sink);
    sink->fd = fd;
    sink->file = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    client->sinks = resized(client->sinks, client->sink_count + 1, sizeof *client->sinks);
    return client->sinks[client->sink_count++] = sink;
}

static void choose_all(struct client *client, struct component *component)
{
    const char **files = component->options.files;
    /* Errors go where the output goes, unless they have a place of their own. */
    bool together = files[1] != NULL && (files[2] == NULL || strcmp(files[1], files[2]) == 0);
    component->input = choose(client, component, 0);
    int output = choose(client, component, 1);
    component->sinks[0] = sink_of(client, output);
    if (together && component->streams[1].kind == OVER_SRUN && output > 2) {
        component->streams[2] = component->streams[1];
        component->sinks[1] = component->sinks[0];
    } else if (files[2] == NULL && component->streams[1].kind != OVER_SRUN) {
        component->streams[2] = component->streams[1];
    } else {
        component->sinks[1] = sink_of(client, choose(client, component, 2));
    }
    component->label_width = 1;
    for (uint32_t last = component->ntasks - 1; last >= 10; last /= 10)
        component->label_width++;
}

void streams_choose(struct client *client)
{
    for (uint32_t i = 0; i < client->component_count; i++)
        choose_all(client, &client->components[i]);
}

struct node *node_of_task(struct client *client, uint32_t task)
{
    return &client->nodes[client->layout.node_of[task]];
}

/* ---- input ---- */

static bool gets_input(struct client *client, const struct component *component, const struct node *node)
{
    uint32_t task = component->streams[0].task;
    return !node->done && (task == ALL_TASKS || node == node_of_task(client, task));
}

bool streams_want_input(const struct client *client, const struct component *component)
{
    if (component->input < 0 || buffer_size(&client->hub.output) > WINDOW)
        return false;
    const struct node *nodes = &client->nodes[component->first_node];
    for (uint32_t i = 0; i < component->nodes; i++)
        if (!nodes[i].done && nodes[i].input_unread >= WINDOW)
            return false;
    return true;
}

void streams_read_input(struct client *client, struct component *component)
{
    char data[CHUNK];
    ssize_t got = read(component->input, data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size_t size = got > 0 ? (size_t)got : 0;
    for (uint32_t i = 0; i < component->nodes; i++) {
        struct node *node = &client->nodes[component->first_node + i];
        if (!gets_input(client, component, node))
            continue;
        send_data(&client->hub, INPUT, (uint16_t)node->vm, client->step, 0, data, size);
        node->input_unread += (uint32_t)size;
    }
    if (size == 0)
        component->input = -1;
}

/* ---- output ---- */

static void add_labelled(const struct component *component, struct sink *sink, const struct frame *frame)
{
    char *label = formatted("%*u: ", component->label_width, frame->task);
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
    if (frame->task >= client->layout.ntasks)
        return;
    struct node *node = node_of_task(client, frame->task);
    struct sink *sink = node->component->sinks[frame->type == ERRORS];
    node->output_owed += frame->size;
    if (sink == NULL || sink->broken)
        return;
    if (node->component->options.label)
        add_labelled(node->component, sink, frame);
    else
        buffer_append(&sink->waiting, frame->data, frame->size);
    sink_flush(client, sink);
}

static size_t waiting_bytes(const struct client *client)
{
    size_t size = 0;
    for (uint32_t i = 0; i < client->sink_count; i++)
        size += buffer_size(&client->sinks[i]->waiting);
    return size;
}

bool streams_waiting(const struct client *client)
{
    return waiting_bytes(client) > 0;
}

void streams_flush(struct client *client)
{
    for (uint32_t i = 0; i < client->sink_count; i++)
        sink_flush(client, client->sinks[i]);
    if (waiting_bytes(client) > WINDOW)
        return;
    for (uint32_t i = 0; i < client->layout.vm_count; i++) {
        struct node *node = &client->nodes[i];
        if (node->output_owed > 0 && !node->done)
            send_number(&client->hub, OUTPUT_TAKEN, (uint16_t)node->vm, client->step, node->output_owed);
        node->output_owed = 0;
    }
}
