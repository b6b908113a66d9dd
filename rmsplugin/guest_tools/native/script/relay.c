/* relay STREAM: carry one of the script's streams from its pipe into its file. Only the part that is still needed is kept: the
 * unacknowledged part, and some of the acknowledged part. If too much is unacknowledged, nothing is
 * taken out of the pipe, and the script waits. Started as root by configure, once, for as long as the VM lives:
 * whatever the user's processes do to each other (`kill -9 -1`), all written output is delivered.
 *
 *   STREAM         the stream, from its first byte; parts that are no longer needed are holes
 *   STREAM.pipe    the script writes into it
 *   STREAM.acked   the number of acknowledged bytes (written by the user's rmsplugin-guest: not to be trusted)
 *   STREAM.kept    the offset from which the stream is kept
 *   STREAM.full    exists while the relay waits for an acknowledgement; then it wants a line in STREAM.wake
 *   STREAM.relay   this process (written by configure) */

#define _GNU_SOURCE

#include "base/files.h"
#include "base/processes.h"
#include "programs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((off_t)1 << 20)

enum { TRIM_BYTES = 2 << 20, LOOK_BYTES = 1 << 20, STEP_BYTES = 1 << 16 };

struct relay {
    const char *stream;
    int pipe, wake, file;
    bool trims;    /* the file system makes holes; else all is kept */
    off_t limit;   /* bytes that may wait for their acknowledgement */
    off_t stays;   /* acknowledged bytes that stay, for a requeue that truncates the job's output file */
    off_t size, acked, kept;
    off_t looked;  /* size at the last look at the acknowledgement */
};

static const char *path_of(const struct relay *relay, char path[PATH_BYTES], const char *suffix)
{
    return path_to(path, VJOB_OUTPUT, relay->stream, suffix);
}

static void look(struct relay *relay)
{
    char path[PATH_BYTES];
    off_t acked = read_number(path_of(relay, path, ".acked"), relay->acked);
    /* More bytes may be acknowledged than there are, after the VM went back to a checkpoint. */
    relay->acked = acked < relay->size ? acked : relay->size;
    relay->looked = relay->size;
}

static void trim(struct relay *relay)
{
    char name[LINE_BYTES], text[LINE_BYTES];
    off_t unneeded = relay->acked - relay->stays;
    if (!relay->trims || unneeded - relay->kept < TRIM_BYTES)
        return;
    snprintf(name, sizeof name, "%s.kept", relay->stream);
    snprintf(text, sizeof text, "%lld\n", (long long)unneeded);
    if (!keep(VJOB_OUTPUT, name, text))
        return;
    fallocate(relay->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, unneeded);
    relay->kept = unneeded;
}

static bool is_full(const struct relay *relay)
{
    return relay->size - relay->acked >= relay->limit;
}

static void wait_for_room(struct relay *relay)
{
    char path[PATH_BYTES], ignored[512];
    if (!is_full(relay) && relay->size - relay->looked < LOOK_BYTES)
        return;
    look(relay);
    trim(relay);
    if (!is_full(relay))
        return;
    /* In this order: the tool that acknowledges looks for this file afterwards. */
    close(open(path_of(relay, path, ".full"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    for (look(relay); is_full(relay); look(relay)) {
        trim(relay);
        struct pollfd woken = {.fd = relay->wake, .events = POLLIN};
        poll(&woken, 1, -1);
        while (read(relay->wake, ignored, sizeof ignored) > 0) {
        }
    }
    unlink(path);
}

/* One step: bytes that have left the pipe are in the file (see follow). */
static void carry(struct relay *relay)
{
    struct pollfd written = {.fd = relay->pipe, .events = POLLIN};
    poll(&written, 1, -1);
    ssize_t count = splice(relay->pipe, NULL, relay->file, &relay->size, STEP_BYTES, SPLICE_F_NONBLOCK);
    if (count >= 0 || errno == EAGAIN || errno == EINTR)
        return;
    /* A full disk, too, makes the script wait: bytes that could not be written are still in the pipe. */
    sleep(1);
    relay->stays = 0;
    look(relay);
    trim(relay);
}

static void set_limits(struct relay *relay)
{
    struct stat place;
    off_t share = vjob_number("memory_mib", 0) / 32;
    relay->limit = (share < 4 ? 4 : share > 32 ? 32 : share) * MIB;
    bool on_disk = lstat(VJOB_OUTPUT, &place) == 0 && S_ISLNK(place.st_mode);
    relay->stays = on_disk ? 256 * MIB : relay->limit;
}

static bool open_all(struct relay *relay)
{
    char path[PATH_BYTES];
    struct stat status;
    /* Both ends of the pipes stay open here, so that neither the script sees a broken pipe, nor this process its end. */
    relay->pipe = open(path_of(relay, path, ".pipe"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    relay->wake = open(path_of(relay, path, ".wake"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    relay->file = open(path_of(relay, path, ""), O_WRONLY | O_CLOEXEC);
    if (relay->pipe < 0 || relay->wake < 0 || relay->file < 0 || fstat(relay->file, &status) != 0)
        return false;
    relay->size = status.st_size;
    relay->kept = read_number(path_of(relay, path, ".kept"), 0);
    relay->trims = fallocate(relay->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, relay->size, TRIM_BYTES) == 0;
    /* Of a relay that has died, perhaps of a former release. */
    unlink(path_of(relay, path, ".full"));
    unlink(path_of(relay, path, ".reader"));
    return true;
}

int relay_main(int argc, char **argv)
{
    struct relay relay = {.stream = argc > 1 ? argv[1] : ""};
    umask(022);
    be_kept("-900");
    set_limits(&relay);
    if (!open_all(&relay)) {
        fprintf(stderr, "relay: there is no stream '%s'\n", relay.stream);
        return EXIT_FAILURE;
    }
    for (;;) {
        wait_for_room(&relay);
        carry(&relay);
    }
}
