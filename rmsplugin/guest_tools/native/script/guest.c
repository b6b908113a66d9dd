/* rmsplugin-guest: control program of the user's script in this VM, run by the wrapper over ssh as the user.
 *
 * The connection may break at any instant, and the VM may be saved and restored at any instant. So every command either has
 * happened or has not, and all but `start` may be given again. */

#include "guest.h"

#include "base/files.h"
#include "base/names.h"
#include "protocol/hub_connect.h"
#include "programs.h"
#include "script.h"
#include "watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AFTER_END_MS = 20 }; /* between two looks, after the end of the script */

static const char *const streams[] = {"stdout", "stderr"};

bool is_stream(const char *name)
{
    return strcmp(name, streams[0]) == 0 || strcmp(name, streams[1]) == 0;
}

/* Print the whole lines of the file from that offset on, and return the offset after them. */
static off_t print_events(int events, off_t from)
{
    static char data[16384];
    ssize_t got;
    while ((got = pread(events, data, sizeof data, from)) > 0) {
        while (got > 0 && data[got - 1] != '\n')
            got--;
        if (got == 0 || !write_all(STDOUT_FILENO, data, (size_t)got))
            break;
        from += got;
    }
    return from;
}

/* `wait OFFSET` tells of steps, too: the lines of their file from that offset on, `now`, and later lines. */
int wait_for_script(off_t from)
{
    char line[LINE_BYTES];
    struct watch watch;
    if (!exists(VJOB_STATE "/started"))
        fail(1, "the script was not started");
    int events = from < 0 ? -1 : open(HUB_EVENTS, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    watch_open(&watch, NULL);
    if (events >= 0) {
        watch_file(&watch, HUB_EVENTS);
        from = print_events(events, from);
        write_all(STDOUT_FILENO, "now\n", 4);
    }
    while (!script_ended()) {
        watch_wait(&watch, -1);
        if (events >= 0)
            from = print_events(events, from);
    }
    while (!script_steps_ended()) {
        watch_wait(&watch, AFTER_END_MS);
        if (events >= 0)
            from = print_events(events, from);
    }
    if (events >= 0)
        print_events(events, from);
    if (read_line(VJOB_STATE "/signal", line))
        printf("signal %s\n", line);
    else if (read_line(VJOB_STATE "/exit", line))
        printf("exit %s\n", line);
    return EXIT_SUCCESS;
}

/* Whether the script was started, the acknowledgements, and the offsets from which the streams are kept. */
int acks(void)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    if (exists(VJOB_STATE "/started"))
        puts("started");
    for (size_t i = 0; i < 2; i++)
        if (read_line(path_to(path, VJOB_STATE, "ack.", streams[i]), line))
            puts(line);
    for (size_t i = 0; i < 2; i++)
        printf("kept %s %lld\n", streams[i], (long long)read_number(path_to(path, VJOB_OUTPUT, streams[i], ".kept"), 0));
    return EXIT_SUCCESS;
}

static off_t number_of(const char *text, const char *what)
{
    off_t number;
    if (!parse_number(text, &number))
        fail(2, "%s needs a number", what);
    return number;
}

int guest_main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "", *first = argc > 2 ? argv[2] : "";
    umask(077);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    if (strcmp(command, "room") == 0)
        return room(number_of(first, "room"));
    if (strcmp(command, "put") == 0)
        return put();
    if (strcmp(command, "start") == 0)
        return start();
    if (strcmp(command, "begin") == 0)
        return begin(argv + 2);
    if (strcmp(command, "follow") == 0) {
        if (!is_stream(first))
            fail(2, "no such stream: %s", first);
        return follow(first, argc > 3 ? number_of(argv[3], "follow") : 0);
    }
    if (strcmp(command, "wait") == 0)
        return wait_for_script(*first == '\0' ? -1 : number_of(first, "wait"));
    if (strcmp(command, "control") == 0)
        return control();
    if (strcmp(command, "acks") == 0)
        return acks();
    fail(2, "usage: rmsplugin-guest room|begin|put|start|follow|wait|control|acks ...");
}
