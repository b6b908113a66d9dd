/* Texts: small files as a whole, and their lines. Nothing is freed: programs that use them end soon. */

#ifndef TEXTS_H
#define TEXTS_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes; /* ends with a NUL that does not count */
    size_t length;
};

struct text text_of_file(const char *path); /* empty if it cannot be read */
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The next line of *rest without its end, which becomes a NUL there; NULL after the last one. */
char *next_line(char **rest);

/* The field of that number, from 1, of a line whose fields are separated by one of the separators; "" if there is none. A
 * blank as the separator stands for any number of blanks and tabs. */
const char *field_of(const char *line, char separator, int number);

/* Whether it is one of the words, which end with a NULL. */
bool is_one_of(const char *word, const char *const words[]);

/* Whether one of the lines has that field. */
bool has_field(const char *lines, char separator, int number, const char *wanted);

/* The value of a KEY=VALUE line; "" if there is none. It is never evaluated. */
const char *value_of(const char *lines, const char *key);

/* FILE gets the text, in place, for it may be a mount of its own; nothing is written if it has the text. Ends the program if
 * it cannot be written. */
void replace_file(const char *path, const struct text *text);
void copy_file(const char *source, const char *path);

#endif
