#define _GNU_SOURCE

#include "unpack.h"

#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, CHUNK = 128 * BLOCK };

/* Of the formats ustar and GNU: names of up to 99 characters. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, target[100], rest[255];
};

static bool read_all(int fd, void *data, size_t size)
{
    char *rest = data;
    while (size > 0) {
        ssize_t got = read(fd, rest, size);
        if (got <= 0)
            return false;
        rest += got;
        size -= (size_t)got;
    }
    return true;
}

static bool is_end(const struct header *header)
{
    static const char nothing[BLOCK];
    return memcmp(header, nothing, BLOCK) == 0;
}

bool read_to_end(int fd)
{
    char ignored[CHUNK];
    ssize_t got;
    while ((got = read(fd, ignored, sizeof ignored)) > 0) {
    }
    return got == 0;
}

/* Octal digits; or GNU's form of larger numbers: the number itself behind a first byte of 128. */
static bool number_of(const char *field, size_t length, unsigned long long *number)
{
    *number = 0;
    if ((unsigned char)*field == 128) {
        for (size_t i = 1; i < length; i++)
            *number = *number << 8 | (unsigned char)field[i];
        return true;
    }
    char digits[16] = "", *end;
    memcpy(digits, field, length);
    *number = strtoull(digits, &end, 8);
    return end != digits && (*end == '\0' || *end == ' ');
}

/* A name that does not lead out of the directory. */
static bool is_plain(const char name[100])
{
    return name[0] != '/' && memchr(name, '\0', 100) != NULL && strstr(name, "..") == NULL;
}

static bool copy(int archive, int file, unsigned long long size)
{
    char data[CHUNK];
    while (size > 0) {
        size_t part = size < CHUNK ? (size_t)size : CHUNK, blocks = (part + BLOCK - 1) / BLOCK * BLOCK;
        if (!read_all(archive, data, blocks) || !write_all(file, data, part))
            return false;
        size -= part;
    }
    return true;
}

/* No other user reads it at any instant, for it may be a secret. */
static bool make_file(int archive, int directory, const struct header *header)
{
    unsigned long long size, mode, uid, gid;
    if (!number_of(header->size, sizeof header->size, &size) || !number_of(header->mode, sizeof header->mode, &mode) ||
        !number_of(header->uid, sizeof header->uid, &uid) || !number_of(header->gid, sizeof header->gid, &gid))
        return false;
    int file = openat(directory, header->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    bool made = copy(archive, file, size) && (geteuid() != 0 || fchown(file, (uid_t)uid, (gid_t)gid) == 0) &&
                fchmod(file, (mode_t)mode & 0777) == 0;
    return close(file) == 0 && made;
}

static bool make_parent(int directory, const char *name)
{
    const char *slash = strchr(name, '/');
    char parent[100];
    if (slash == NULL)
        return true;
    memcpy(parent, name, (size_t)(slash - name));
    parent[slash - name] = '\0';
    return mkdirat(directory, parent, 0755) == 0 || faccessat(directory, parent, F_OK, 0) == 0;
}

static bool make_member(int archive, int directory, const struct header *header)
{
    if (!is_plain(header->name) || !make_parent(directory, header->name))
        return false;
    unlinkat(directory, header->name, 0);
    if (header->type == '2')
        return memchr(header->target, '\0', sizeof header->target) != NULL &&
               symlinkat(header->target, directory, header->name) == 0;
    return (header->type == '0' || header->type == '\0') && make_file(archive, directory, header);
}

bool unpack(int archive, const char *place)
{
    struct header header;
    int directory = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool made = directory >= 0;
    while (made && (made = read_all(archive, &header, sizeof header)) && !is_end(&header))
        made = make_member(archive, directory, &header);
    if (directory >= 0)
        close(directory);
    return made;
}

/* unpack: standard input is the engine's archive of tools and of the files that make a guest a VM of its vjob (configure). */
int unpack_main(int argc, char **argv)
{
    if (argc != 1) {
        fprintf(stderr, "usage: %s <ARCHIVE\n", argv[0]);
        return 2;
    }
    umask(022);
    bool unpacked = unpack(STDIN_FILENO, VJOB_RUN);
    /* Unread data would look like a broken connection. */
    if (!read_to_end(STDIN_FILENO) || !unpacked)
        fail(1, "the archive of tools is incomplete, or does not fit");
    execl(VJOB_BIN "/configure", VJOB_BIN "/configure", (char *)NULL);
    fail(127, "the archive has no configure");
}
