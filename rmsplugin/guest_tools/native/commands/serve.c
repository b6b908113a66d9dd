/* commands serve [run:NUMBER] ID...: tells of requests as they come, and prints the requests that are taken, as long as standard input
 * is open. The wrapper knows of these IDs already; ID:again was taken, but did not reach it. */

#define _GNU_SOURCE

#include "askers.h"
#include "desk.h"

#include "base/run.h"
#include "base/texts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lines come whole, in whatever pieces they were read. */
struct input {
    int fd;
    size_t length;
    bool overlong; /* such a line is left out: the protocol has none */
    char line[LINE_BYTES];
};

static char *const *known;

static void flush(void)
{
    if (fflush(stdout) != 0)
        exit(EXIT_FAILURE); /* nobody listens any more */
}

/* One pipe brings the news of all other tools, so that one process writes to the connection. Each connection has a new pipe:
 * the old pipe of a connection that broke unseen gets no more news. The pipe is opened for writing, too, so it never
 * ends. */
static int open_wake(void)
{
    char path[PATH_BYTES], name[32];
    snprintf(name, sizeof name, ".wake.%d", (int)getpid());
    path_to(path, DESK, name, "");
    mkdir(DESK, 0700);
    unlink(path);
    int wake = mkfifo(path, 0600) == 0 ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (wake < 0 || rename(path, DESK_WAKE) != 0)
        fail(1, "cannot write %s", DESK);
    return wake;
}

/* ---- all requests of a kind ---- */

/* The request that has waited longest comes first: IDs begin with the time. */
static void each_request(const char *kind, void (*act)(const char *id))
{
    struct dirent **entries;
    int count = scandir(DESK, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *name = entries[i]->d_name, *end = strrchr(name, '.');
        if (end != NULL && strcmp(end, kind) == 0) {
            *end = '\0';
            if (is_request_id(name))
                act(name);
        }
        free(entries[i]); /* this process lives only as long as the job */
    }
    if (count >= 0)
        free(entries);
}

static void announce(const char *id)
{
    printf("new %s\n", id);
}

/* A request that was taken over a broken connection, and that no wrapper knows any more, has no answer. */
static void settle(const char *id)
{
    char place[PATH_BYTES], path[PATH_BYTES], again[LINE_BYTES];
    const char *const *ids = (const char *const *)known;
    path_to(place, DESK, id, ".taken");
    snprintf(again, sizeof again, "%s:again", id);
    if (is_one_of(id, ids)) {
        asker_watch(id);
        if (!asker_lives(place))
            printf("cancel %s\n", id);
        return;
    }
    if (is_one_of(again, ids) && rename(place, path_to(path, DESK, id, ".new")) == 0)
        return;
    if (exists(answer_path(path, place, 0)) || lose(place) != UNASKED)
        return; /* without room for it now, the next connection tells */
    printf("cancel %s\n", id);
    discard_request(place);
}

/* ---- taking ---- */

/* The request, if a tool still waits for it; -1 otherwise. */
static int open_request(const char *place, off_t *size)
{
    char path[PATH_BYTES];
    struct stat status;
    int request = open(path_to(path, place, "request", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (request >= 0 && asker_lives(place) && fstat(request, &status) == 0 && S_ISREG(status.st_mode)) {
        *size = status.st_size;
        return request;
    }
    if (request >= 0)
        close(request);
    return -1;
}

static void print_request(const char *id, int request, off_t size)
{
    static char data[65536];
    ssize_t got = 0;
    printf("request %s %lld\n", id, (long long)size);
    for (; size > 0; size -= got) {
        got = read(request, data, size < (off_t)sizeof data ? (size_t)size : sizeof data);
        if (got <= 0)
            exit(EXIT_FAILURE); /* the wrapper waits for exactly so many bytes */
        fwrite(data, 1, (size_t)got, stdout);
    }
}

static void take(const char *id)
{
    char new[PATH_BYTES], taken[PATH_BYTES];
    off_t size;
    leave_if_superseded();
    if (!is_request_id(id)) {
        printf("gone %s\n", id);
        return;
    }
    path_to(new, DESK, id, ".new");
    int request = open_request(new, &size);
    if (request >= 0 && rename(new, path_to(taken, DESK, id, ".taken")) == 0) {
        print_request(id, request, size);
        asker_watch(id);
    } else {
        discard_request(new);
        printf("gone %s\n", id);
    }
    if (request >= 0)
        close(request);
}

/* ---- lines ---- */

static void obey(char *line)
{
    static const char *const told[] = {"new", "cancel", "more", NULL};
    char *rest = line + strspn(line, " \t"), *verb = strsep(&rest, " \t");
    const char *id = rest == NULL ? "" : rest + strspn(rest, " \t");
    if (is_one_of(verb, told))
        printf("%s %s\n", verb, id);
    else if (strcmp(verb, "take") == 0)
        take(id);
    else if (strcmp(verb, "again") == 0)
        each_request(".new", announce);
}

static void add(struct input *input, char byte)
{
    if (byte != '\n') {
        input->overlong = input->overlong || input->length == sizeof input->line - 1;
        if (!input->overlong)
            input->line[input->length++] = byte;
        return;
    }
    input->line[input->length] = '\0';
    if (!input->overlong)
        obey(input->line);
    input->length = 0;
    input->overlong = false;
}

/* Obey the lines that have come; false at the end of input, where an incomplete line is ignored. */
static bool hear(struct input *input)
{
    char data[4096];
    ssize_t got = read(input->fd, data, sizeof data);
    for (ssize_t i = 0; i < got; i++)
        add(input, data[i]);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

int serve(char *const ids[])
{
    static struct input wake, orders = {.fd = STDIN_FILENO};
    bool connected = true;
    if (*ids != NULL && strncmp(*ids, "run:", 4) == 0) {
        hold_connection();
        enter_run(*ids++ + 4);
    }
    known = ids;
    wake.fd = open_wake();
    puts("parts"); /* the wrapper may send an answer in parts */
    each_request(".taken", settle);
    each_request(".new", announce);
    while (connected) {
        struct pollfd some[2 + MOST_ASKERS] = {{.fd = wake.fd, .events = POLLIN}, {.fd = orders.fd, .events = POLLIN}};
        nfds_t askers = askers_to_poll(some + 2);
        flush();
        if (poll(some, 2 + askers, -1) < 0)
            continue;
        askers_polled(some + 2);
        if (some[0].revents)
            hear(&wake);
        if (some[1].revents)
            connected = hear(&orders);
    }
    flush();
    return EXIT_SUCCESS;
}
