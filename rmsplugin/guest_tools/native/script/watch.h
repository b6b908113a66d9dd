/* Waiting without looking again and again: until the script may have ended, a stream has grown, or the connection of
 * this command has. An idle job wakes nobody. */

#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>

struct watch {
    int events, directory;  /* inotify, and its watch of job/ until the script runs */
    int script, supervisor; /* -1: not known yet, or it cannot be waited for */
    bool looks;             /* nothing wakes us when the script ends: look again now and then */
};

/* With a stream ("stdout", or NULL) its growth ends a wait, too. */
void watch_open(struct watch *watch, const char *stream);

void watch_file(struct watch *watch, const char *path); /* its growth does, as well */

/* Return when something may have happened, or after so many milliseconds (-1: however long it takes). Ends the program
 * when standard input ends: nothing else tells a command that only waits that nobody listens any more. */
void watch_wait(struct watch *watch, int timeout_ms);

#endif
