/* rmsplugin-guest follow STREAM OFFSET [RUN]: print the stream from that offset on as it grows, until the script has ended. */

#include "guest.h"

#include "base/files.h"
#include "base/processes.h"
#include "script.h"
#include "watch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 1 << 16,
    PIPE_BYTES = 1 << 20, /* at most */
    OTHERS_MS = 1000,
    AFTER_END_MS = 20, /* between two looks, after the end of the script */
};

struct stream {
    const char *name;
    int file, pipe;
    off_t position; /* printed up to here */
    off_t enough;   /* the size of the file with the script's whole output; 0 while the script runs */
    long long others_until_ms;
};

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static off_t size_of(const struct stream *stream)
{
    struct stat status;
    if (fstat(stream->file, &status) != 0)
        fail(1, "cannot read %s", stream->name);
    return status.st_size;
}

/* A relay of a former release is a shell: between the pipe and the file, its dd may hold a part of the stream. It waits
 * for the pipe (S) only when that is empty. */
static bool dd_waits(const struct stream *stream)
{
    char path[PATH_BYTES];
    struct process dd;
    path_to(path, VJOB_OUTPUT, stream->name, ".reader");
    if (!exists(path) || !exists("/proc/1")) /* where users see no processes of others, this can only be hoped for */
        return true;
    pid_t pid = (pid_t)read_number(path, 0);
    return pid > 0 && process_look(pid, &dd) && dd.state == 'S';
}

/* Whether the file has the whole output of the script, which has ended. The pipe tells: the relay takes from it and writes into
 * the file in one step. */
static bool relayed(struct stream *stream)
{
    int waiting = 0;
    /* A script that a signal ends is usually ended with its children, and they may have more output. */
    if (stream->others_until_ms == 0)
        stream->others_until_ms = now_ms() + OTHERS_MS;
    if (stream->enough == 0 && now_ms() < stream->others_until_ms && script_others_left())
        return false;
    /* Processes that the script leaves behind may go on writing for ever. */
    if (stream->enough == 0)
        stream->enough = size_of(stream) + PIPE_BYTES + CHUNK_BYTES;
    if (size_of(stream) >= stream->enough)
        return true;
    return ioctl(stream->pipe, FIONREAD, &waiting) == 0 && waiting == 0 && dd_waits(stream);
}

static void print_up_to(struct stream *stream, off_t end)
{
    static char chunk[CHUNK_BYTES];
    while (stream->position < end) {
        size_t wanted = end - stream->position < CHUNK_BYTES ? (size_t)(end - stream->position) : CHUNK_BYTES;
        ssize_t count = pread(stream->file, chunk, wanted, stream->position);
        if (count <= 0 || !write_all(STDOUT_FILENO, chunk, (size_t)count))
            exit(EXIT_FAILURE);
        stream->position += count;
    }
}

int follow(const char *name, off_t offset)
{
    char path[PATH_BYTES];
    off_t kept = read_number(path_to(path, VJOB_OUTPUT, name, ".kept"), 0);
    if (offset < kept)
        fail(1, "%s is kept from byte %lld on, not from %lld", name, (long long)kept, (long long)offset);
    struct stream stream = {.name = name, .position = offset};
    stream.file = open(path_to(path, VJOB_OUTPUT, name, ""), O_RDONLY | O_CLOEXEC);
    stream.pipe = open(path_to(path, VJOB_OUTPUT, name, ".pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (stream.file < 0 || stream.pipe < 0)
        fail(1, "there is no %s", name);
    struct watch watch;
    watch_open(&watch, name);
    for (;;) {
        /* In this order: the output before the script's observed end is printed. Its children's output goes on. */
        bool ended = script_ended();
        bool last = ended && script_steps_ended() && relayed(&stream);
        /* After the VM went back to a checkpoint the file has less than was delivered: that part comes again, and is
         * skipped. */
        print_up_to(&stream, size_of(&stream));
        if (last)
            return EXIT_SUCCESS;
        watch_wait(&watch, ended ? AFTER_END_MS : -1);
    }
}
