/* keep_lock fcntl|flock FILE: lock it, write into it again and again, and say what came of it; once FILE.again exists, lock anew. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *name;
static int by_flock;

static void tell(const char *what, int failed)
{
    printf("%s: %s: %s\n", name, what, failed ? strerrorname_np(errno) : "ok");
    fflush(stdout);
}

static int lock(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return by_flock ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &all);
}

static int written(int fd)
{
    return pwrite(fd, "guest\n", 6, 0) != 6 || fsync(fd) != 0;
}

static int read_back(int fd)
{
    char text[6];
    return pread(fd, text, 6, 0) != 6;
}

int main(int argc, char **argv)
{
    char again[4096];
    int fd, failed = 0;
    if (argc != 3 || (fd = open(argv[2], O_RDWR)) < 0)
        return 2;
    by_flock = strcmp(argv[1], "flock") == 0;
    name = argv[2];
    snprintf(again, sizeof again, "%s.again", argv[2]);
    tell("lock", lock(fd));
    tell("write", written(fd));
    while (access(again, F_OK) != 0) {
        if (!failed && (failed = written(fd)))
            tell("write later", failed);
        usleep(500000);
    }
    tell("read", read_back(fd));
    tell("write", written(fd));
    tell("lock again in the same descriptor", lock(fd));
    tell("read after that", read_back(fd));
    tell("write after that", written(fd));
    tell("close", close(fd));
    if ((fd = open(argv[2], O_RDWR)) < 0)
        return 1;
    tell("lock in a new descriptor", lock(fd));
    tell("read through that", read_back(fd));
    tell("write through that", written(fd));
    return 0;
}
