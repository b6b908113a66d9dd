/* The wrapper's side of slurm-client: requests of the job's user, which wait on a desk (docs/protocols.md, section 3).
 *
 * A request is a directory there: ID.new until it is taken, which is one rename, and so happens once; then ID.taken,
 * until the tool that asked has read the answer. */

#ifndef DESK_H
#define DESK_H

#include "base/files.h"

#include <stdbool.h>
#include <sys/types.h>

#define DESK VJOB_JOB "/commands"
#define DESK_WAKE DESK "/wake" /* the pipe that brings the connected tool all its news */

enum { REQUEST_ID_BYTES = 32 };

bool is_request_id(const char *id); /* SECONDS-PID: no path is made of any other text */
pid_t asker_of(const char *place); /* 0: not known */
bool asker_lives(const char *place);
void discard_request(const char *place); /* with all files in it */

/* The place of an answer, or of that part of it (from 1; 0: the whole), in a request's directory. */
const char *answer_path(char path[PATH_BYTES], const char *place, off_t number);
/* The place where this process writes an answer. */
const char *own_answer_path(char path[PATH_BYTES], const char *place);

enum delivery {
    DELIVERED,
    NO_ROOM, /* it could not be kept, and should come again */
    UNASKED, /* nobody waits for it any more: it should be cancelled, and then discarded */
};

/* Give the answer that this process has written to the tool that asked. */
enum delivery deliver(const char *place, off_t number);
/* The same for an answer that says that the rest is lost. */
enum delivery lose(const char *place);
/* The meaning of an answer that could not be kept. */
enum delivery no_room(const char *place);

/* The two commands, each in a file of its name; each returns the exit code. */
int serve(char *const known[]);
int answer(const char *id, off_t number);

#endif
