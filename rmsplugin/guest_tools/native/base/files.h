/* The small files of /run/rmsplugin by which the tools in a guest exchange facts (places.h). */

#ifndef FILES_H
#define FILES_H

#include "places.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PATH_BYTES = 128, LINE_BYTES = 128 };

/* Print to standard error which program cannot do what, and end with that exit code. */
void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Make "DIRECTORY/NAMESUFFIX" of it. */
const char *path_to(char path[PATH_BYTES], const char *directory, const char *name, const char *suffix);

bool exists(const char *path);
bool read_line(const char *path, char line[LINE_BYTES]); /* the first one, without its end; false if there is none */
bool parse_number(const char *text, off_t *number);      /* up to 15 digits and nothing else */
off_t read_number(const char *path, off_t otherwise);
off_t vjob_number(const char *key, off_t otherwise);     /* the number in the file that the engine wrote */

/* DIRECTORY/NAME becomes the text, whole or not at all; false with errno. */
bool keep(const char *directory, const char *name, const char *text);

bool write_all(int fd, const void *data, size_t size);

#endif
