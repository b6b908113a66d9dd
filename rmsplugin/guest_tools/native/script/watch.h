/* Waiting without repeated looks: until the script may have ended, a stream has grown, or the connection of
 * this command has ended. An idle job wakes no process. */

#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>

struct watch {
    int events, directory;  /* inotify, and its watch of job/ until the script runs */
    int script, supervisor; /* -1: unknown yet, or it cannot be waited for */
    bool looks;             /* nothing wakes this process when the script ends: it looks now and then */
};

/* With a stream ("stdout", or NULL) its growth ends a wait, too. */
void watch_open(struct watch *watch, const char *stream);

void watch_file(struct watch *watch, const char *path); /* its growth ends a wait, too */

/* Return when something may have happened, or after so many milliseconds (-1: without limit). Ends the program
 * when standard input ends: a command that only waits has no other sign that nobody listens any more. Ends it, too,
 * when a later run of the job has come (base/run.h). */
void watch_wait(struct watch *watch, int timeout_ms);

#endif
