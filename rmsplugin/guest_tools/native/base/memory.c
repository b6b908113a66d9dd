#define _GNU_SOURCE

#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void out_of_memory(void)
{
    static const char text[] = "vjob-tools: out of memory\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(71);
    _exit(70);
}

void *allocate(size_t count, size_t size)
{
    void *made = calloc(count > 0 ? count : 1, size);
    if (made == NULL)
        out_of_memory();
    return made;
}

void *resized(void *old, size_t count, size_t size)
{
    if (size > 0 && count > SIZE_MAX / size)
        out_of_memory();
    void *made = realloc(old, count > 0 ? count * size : 1);
    if (made == NULL)
        out_of_memory();
    return made;
}

char *copied(const char *text)
{
    char *made = strdup(text);
    if (made == NULL)
        out_of_memory();
    return made;
}

char *formatted(const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0)
        out_of_memory();
    va_end(arguments);
    return made;
}

size_t buffer_size(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

char *buffer_data(struct buffer *buffer)
{
    return buffer->data + buffer->start;
}

char *buffer_room(struct buffer *buffer, size_t size)
{
    if (buffer->capacity - buffer->end >= size)
        return buffer->data + buffer->end;
    size_t held = buffer_size(buffer);
    if (buffer->start > 0 && held > 0)
        memmove(buffer->data, buffer->data + buffer->start, held);
    buffer->start = 0;
    buffer->end = held;
    if (buffer->capacity - held < size) {
        size_t wanted = buffer->capacity * 2 > held + size ? buffer->capacity * 2 : held + size;
        buffer->data = resized(buffer->data, wanted, 1);
        buffer->capacity = wanted;
    }
    return buffer->data + buffer->end;
}

void buffer_added(struct buffer *buffer, size_t size)
{
    buffer->end += size;
}

void buffer_append(struct buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return;
    memcpy(buffer_room(buffer, size), data, size);
    buffer_added(buffer, size);
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_taken(struct buffer *buffer, size_t size)
{
    buffer->start += size;
    if (buffer->start < buffer->end)
        return;
    buffer->start = buffer->end = 0;
    if (buffer->capacity > 1 << 20)
        buffer_free(buffer); /* a buffer that was large once need not stay so */
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}
