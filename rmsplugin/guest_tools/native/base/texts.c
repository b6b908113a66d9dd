#include "texts.h"

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *enough(void *bytes, size_t size)
{
    void *larger = realloc(bytes, size);
    if (larger == NULL)
        fail(1, "no memory");
    return larger;
}

struct text text_of_file(const char *path)
{
    enum { CHUNK = 16384 };
    struct text text = {enough(NULL, 1), 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t size = 1; fd >= 0 && size > 0; text.length += size > 0 ? (size_t)size : 0) {
        text.bytes = enough(text.bytes, text.length + CHUNK + 1);
        size = read(fd, text.bytes + text.length, CHUNK);
    }
    if (fd >= 0)
        close(fd);
    text.bytes[text.length] = '\0';
    return text;
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t more = (size_t)vsnprintf(NULL, 0, format, arguments);
    text->bytes = enough(text->bytes, text->length + more + 1);
    vsnprintf(text->bytes + text->length, more + 1, format, again);
    text->length += more;
    va_end(again);
    va_end(arguments);
}

char *next_line(char **rest)
{
    char *line = *rest;
    if (*line == '\0')
        return NULL;
    size_t length = strcspn(line, "\n");
    *rest = line + length + (line[length] == '\n');
    line[length] = '\0';
    return line;
}

/* The beginning and the length of the field; a line ends at its newline, too. */
static const char *find_field(const char *line, char separator, int number, size_t *length)
{
    const char ends[] = {'\n', separator, separator == ' ' ? '\t' : '\0', '\0'};
    for (;;) {
        if (separator == ' ')
            line += strspn(line, ends + 1);
        *length = strcspn(line, ends);
        if (--number == 0)
            return line;
        line += *length;
        if (*line == '\0' || *line == '\n') {
            *length = 0;
            return line;
        }
        line++;
    }
}

const char *field_of(const char *line, char separator, int number)
{
    size_t length;
    const char *begin = find_field(line, separator, number, &length);
    char *field = enough(NULL, length + 1);
    memcpy(field, begin, length);
    field[length] = '\0';
    return field;
}

bool is_one_of(const char *word, const char *const words[])
{
    while (*words != NULL && strcmp(word, *words) != 0)
        words++;
    return *words != NULL;
}

bool has_field(const char *lines, char separator, int number, const char *wanted)
{
    size_t length;
    for (const char *line = lines; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *field = find_field(line, separator, number, &length);
        if (length == strlen(wanted) && strncmp(field, wanted, length) == 0)
            return true;
    }
    return false;
}

void replace_file(const char *path, const struct text *text)
{
    struct text old = text_of_file(path);
    if (exists(path) && old.length == text->length && memcmp(old.bytes, text->bytes, text->length) == 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || !write_all(fd, text->bytes, text->length) || close(fd) != 0)
        fail(1, "cannot write %s: %s", path, strerror(errno));
}

void copy_file(const char *source, const char *path)
{
    struct text text = text_of_file(source);
    replace_file(path, &text);
}

const char *value_of(const char *lines, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = lines; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == '=')
            return strndup(line + length + 1, strcspn(line + length + 1, "\n"));
    }
    return "";
}
