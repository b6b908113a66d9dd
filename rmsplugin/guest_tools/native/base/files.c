#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("rmsplugin-guest: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

const char *path_to(char path[PATH_BYTES], const char *directory, const char *name, const char *suffix)
{
    snprintf(path, PATH_BYTES, "%s/%s%s", directory, name, suffix);
    return path;
}

bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool read_line(const char *path, char line[LINE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, line, LINE_BYTES - 1);
    close(fd);
    if (size <= 0)
        return false;
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

bool parse_number(const char *text, off_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 15 || text[digits] != '\0')
        return false;
    *number = strtoll(text, NULL, 10);
    return true;
}

off_t read_number(const char *path, off_t otherwise)
{
    char line[LINE_BYTES];
    off_t number;
    return read_line(path, line) && parse_number(line, &number) ? number : otherwise;
}

off_t vjob_number(const char *key, off_t otherwise)
{
    FILE *file = fopen(VJOB_ETC "/vjob", "re");
    char line[4096];
    size_t length = strlen(key);
    off_t number = otherwise;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, length) == 0 && line[length] == '=' && parse_number(line + length + 1, &number))
            break;
    }
    if (file != NULL)
        fclose(file);
    return number;
}

bool keep(const char *directory, const char *name, const char *text)
{
    char half[PATH_BYTES], whole[PATH_BYTES], suffix[32];
    snprintf(suffix, sizeof suffix, ".%d", (int)getpid());
    snprintf(half, sizeof half, "%s/.%s%s", directory, name, suffix);
    path_to(whole, directory, name, "");
    int fd = open(half, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool written = write_all(fd, text, strlen(text));
    if (close(fd) == 0 && written && rename(half, whole) == 0)
        return true;
    int reason = errno;
    unlink(half);
    errno = reason;
    return false;
}

bool write_all(int fd, const void *data, size_t size)
{
    const char *rest = data;
    while (size > 0) {
        ssize_t written = write(fd, rest, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        rest += written;
        size -= (size_t)written;
    }
    return true;
}
