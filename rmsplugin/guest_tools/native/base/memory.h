/* Memory that is there, or the program ends; and byte buffers that grow. */

#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

void *allocate(size_t count, size_t size);               /* zeroed */
void *resized(void *old, size_t count, size_t size);
char *copied(const char *text);
char *formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct buffer {
    char *data;
    size_t start, end, capacity; /* its content: data[start..end) */
};

size_t buffer_size(const struct buffer *buffer);
char *buffer_data(struct buffer *buffer);
char *buffer_room(struct buffer *buffer, size_t size); /* a place where size bytes can be written; then buffer_added */
void buffer_added(struct buffer *buffer, size_t size);
void buffer_append(struct buffer *buffer, const void *data, size_t size);
void buffer_text(struct buffer *buffer, const char *text); /* without its NUL */
void buffer_taken(struct buffer *buffer, size_t size);     /* from the front */
void buffer_free(struct buffer *buffer);

#endif
