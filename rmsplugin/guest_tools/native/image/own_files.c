/* The files that make a guest of the image this guest: its name, its host key, and who may come in as root. */

#include "image.h"

#include "base/files.h"
#include "base/texts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEYS "/root/.ssh/authorized_keys"

bool write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    bool written = fd >= 0 && write_all(fd, text, strlen(text));
    return fd >= 0 && close(fd) == 0 && written;
}

void write_name(const char *name, const char *address)
{
    struct text line = {NULL, 0}, hosts = {NULL, 0};
    text_add(&line, "%s\n", name);
    text_add(&hosts, "127.0.0.1 localhost\n%s %s\n", field_of(address, '/', 1), name);
    write_file("/etc/hostname", line.bytes, 0644);
    write_file("/etc/hosts", hosts.bytes, 0644);
}

void authorise(const char *key)
{
    struct text line = {NULL, 0};
    text_add(&line, "%s\n", key);
    if (*key != '\0' && !write_file(KEYS, line.bytes, 0600))
        fail(1, "cannot write " KEYS);
}

ssize_t keep_host_key(const char *encoded, unsigned char key[KEY_BYTES])
{
    static const char half[] = HOST_KEY ".new";
    ssize_t size = decode_base64(encoded, key, KEY_BYTES);
    int file = size > 0 ? open(half, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    bool kept = file >= 0 && write_all(file, key, (size_t)size) && close(file) == 0 && rename(half, HOST_KEY) == 0;
    return kept ? size : -1;
}

void keep_accounts(void)
{
    mkdir(VJOB_RUN, 0755);
    mkdir(VJOB_IMAGE, 0755);
    copy_file(IMAGE_TOOLS "/passwd", VJOB_IMAGE "/passwd");
}
