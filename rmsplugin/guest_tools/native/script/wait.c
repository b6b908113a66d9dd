/* rmsplugin-guest wait: until the script and its steps have ended. */

#include "guest.h"

#include "base/files.h"
#include "protocol/hub_connect.h"
#include "script.h"
#include "watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { AFTER_END_MS = 20 }; /* between two looks, after the end of the script */

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
