/* commands answer ID [NUMBER]: standard input is the answer, or that part of it. It is kept when it is whole. Else, as the exit
 * status tells, it comes again later, over the next connection if this one broke, or it is lost. */

#include "desk.h"

#include "base/texts.h"
#include "base/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An answer that nobody waits for. Unread data would look like a broken connection. */
static int drop(void)
{
    read_to_end(STDIN_FILENO);
    return EXIT_SUCCESS;
}

/* Nobody will print the rest: the connected tool tells the wrapper. */
static void cancel(const char *id)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "cancel %s\n", id);
    int wake = open(DESK_WAKE, O_RDWR | O_CLOEXEC); /* so the open returns at once, though perhaps nobody reads it */
    if (wake < 0)
        return;
    write_all(wake, line, (size_t)length);
    close(wake);
}

/* Whether that part is the first, the next, or here. If the VM went back to a checkpoint, the part before it may be
 * gone. */
static bool follows(const char *place, off_t number)
{
    char path[PATH_BYTES];
    return number <= 1 || exists(answer_path(path, place, number - 1)) || exists(answer_path(path, place, number));
}

static bool copy_input(const char *path)
{
    static char data[65536];
    ssize_t got = 0;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    while ((got = read(STDIN_FILENO, data, sizeof data)) > 0 && write_all(file, data, (size_t)got)) {
    }
    return close(file) == 0 && got == 0;
}

/* Whether the file has as many bytes as its first line says: EXIT_CODE OUT ERR. */
static bool is_whole(const char *path)
{
    char line[LINE_BYTES];
    struct stat status;
    off_t out, errors;
    return read_line(path, line) && stat(path, &status) == 0 && parse_number(field_of(line, ' ', 2), &out) &&
           parse_number(field_of(line, ' ', 3), &errors) && status.st_size == (off_t)strlen(line) + 1 + out + errors;
}

/* Keep standard input, and read it to its end: unread data would look like a broken connection. */
static enum delivery keep_input(const char *place, off_t number)
{
    char own[PATH_BYTES];
    bool kept = copy_input(own_answer_path(own, place)) && is_whole(own);
    read_to_end(STDIN_FILENO);
    if (kept)
        return deliver(place, number);
    unlink(own);
    return no_room(place);
}

static int end(const char *id, const char *place, enum delivery delivery)
{
    if (delivery == UNASKED) {
        cancel(id);
        discard_request(place);
    }
    return delivery == NO_ROOM ? EXIT_FAILURE : EXIT_SUCCESS;
}

int answer(const char *id, off_t number)
{
    char new[PATH_BYTES], place[PATH_BYTES];
    path_to(place, DESK, id, ".taken");
    /* If the file is there, the VM went back to a checkpoint from before the answer was taken. */
    rename(path_to(new, DESK, id, ".new"), place);
    if (!exists(place))
        return drop();
    if (!follows(place, number)) {
        cancel(id);
        read_to_end(STDIN_FILENO);
        return end(id, place, lose(place));
    }
    return end(id, place, keep_input(place, number));
}
