#define _GNU_SOURCE

#include "desk.h"

#include "base/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 8 };

#define LOST \
    "rmsplugin: error: the connection to the front broke: the command may have been carried out, or not; " \
    "look before you repeat it\n"

bool is_request_id(const char *id)
{
    size_t length = strspn(id, "0123456789-");
    return length > 0 && length < REQUEST_ID_BYTES && id[length] == '\0';
}

pid_t asker_of(const char *place)
{
    char path[PATH_BYTES];
    return (pid_t)read_number(path_to(path, place, "client", ""), 0);
}

bool asker_lives(const char *place)
{
    struct process process;
    pid_t client = asker_of(place);
    return client > 0 && process_look(client, &process) && process.state != 'Z';
}

static int discard_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    remove(path);
    return 0;
}

void discard_request(const char *place)
{
    nftw(place, discard_one, DEPTH, FTW_DEPTH | FTW_PHYS);
}

const char *answer_path(char path[PATH_BYTES], const char *place, off_t number)
{
    char suffix[32] = "";
    if (number > 0)
        snprintf(suffix, sizeof suffix, ".%lld", (long long)number);
    return path_to(path, place, "answer", suffix);
}

static const char *own_answer_name(void)
{
    static char name[32];
    snprintf(name, sizeof name, ".answer.%d", (int)getpid());
    return name;
}

const char *own_answer_path(char path[PATH_BYTES], const char *place)
{
    return path_to(path, place, own_answer_name(), "");
}

/* The pipe is opened for reading, too: so a pipe without other readers keeps nobody waiting; and a full one wakes as well. */
static void wake_asker(const char *place)
{
    char path[PATH_BYTES];
    int wake = open(path_to(path, place, "wake", ""), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (wake < 0)
        return;
    (void)!write(wake, "\n", 1);
    close(wake);
}

/* The first answer of a number counts: a link is made once. The part before stays until then: it tells
 * that this one is the next. */
enum delivery deliver(const char *place, off_t number)
{
    char own[PATH_BYTES], path[PATH_BYTES];
    own_answer_path(own, place);
    bool kept = link(own, answer_path(path, place, number)) == 0 || errno == EEXIST;
    unlink(own);
    if (!kept)
        return no_room(place);
    if (number > 1)
        unlink(answer_path(path, place, number - 1));
    if (!asker_lives(place))
        return UNASKED;
    wake_asker(place);
    return DELIVERED;
}

enum delivery no_room(const char *place)
{
    return asker_lives(place) ? NO_ROOM : UNASKED;
}

enum delivery lose(const char *place)
{
    char text[sizeof LOST + LINE_BYTES];
    snprintf(text, sizeof text, "1 0 %zu\n%s", strlen(LOST), LOST);
    keep(place, own_answer_name(), text);
    return deliver(place, 0);
}
