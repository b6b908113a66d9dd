/* The wrapper's side of slurm-client: requests of the job's user, which wait on a desk (docs/protocols.md, section 3).
 *
 * A request is a directory there: ID.new until it is taken, which is one rename, and so happens once; then ID.taken,
 * until whoever asked has read the answer. */

#ifndef DESK_H
#define DESK_H

#include "base/files.h"

#include <stdbool.h>
#include <sys/types.h>

#define DESK VJOB_JOB "/commands"
#define DESK_WAKE DESK "/wake" /* the pipe that brings the tool that is connected all there is to tell */

bool is_request_id(const char *id); /* SECONDS-PID: no path is made of anything else */
bool asker_lives(const char *place);
void discard_request(const char *place); /* with all that is in it */

/* Where an answer, or that part of it (from 1; 0: it is whole), lies in a request's directory. */
const char *answer_path(char path[PATH_BYTES], const char *place, off_t number);
/* Where this process writes one. */
const char *own_answer_path(char path[PATH_BYTES], const char *place);

enum delivery {
    DELIVERED,
    NO_ROOM, /* it could not be kept, and is to come again */
    UNASKED, /* nobody asks any more: it is to be cancelled, and then discarded */
};

/* Give whoever asked the answer that this process has written. */
enum delivery deliver(const char *place, off_t number);
/* Likewise, an answer that says that the rest is lost. */
enum delivery lose(const char *place);
/* What it means that an answer could not be kept. */
enum delivery no_room(const char *place);

/* The two commands, each in a file of its name; each returns the exit code. */
int serve(char *const known[]);
int answer(const char *id, off_t number);

#endif
