/* The small files of /run/rmsplugin by which the tools in a guest tell each other what they know
 * (docs/protocols.md, section 3). */

#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define BIN "/run/rmsplugin/bin"
#define ETC "/run/rmsplugin/etc"
#define JOB "/run/rmsplugin/job"     /* what a start needs, and its user's requests; on the image's disk, if any */
#define STATE "/run/rmsplugin/state" /* how far the script is; in memory: a disk that its user fills costs it no end */
#define OUTPUT "/run/rmsplugin/output"
#define GROUP "/run/rmsplugin/group" /* a link to the control group of the job's processes, if there is one */
#define USAGE "/run/rmsplugin/usage" /* what they have used */
#define SCRIPT "/run/rmsplugin/script" /* a link to the path that the script has on the front, if configure could make it */

enum { PATH_BYTES = 128, LINE_BYTES = 128 };

/* Print to standard error who cannot do what, and end with that exit code. */
void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Make "DIRECTORY/NAMESUFFIX" of it. */
const char *path_to(char path[PATH_BYTES], const char *directory, const char *name, const char *suffix);

bool exists(const char *path);
bool read_line(const char *path, char line[LINE_BYTES]); /* the first one, without its end; false if there is none */
bool parse_number(const char *text, off_t *number);      /* up to 15 digits and nothing else */
off_t read_number(const char *path, off_t otherwise);
off_t vjob_number(const char *key, off_t otherwise);     /* of the file that the engine wrote */

/* DIRECTORY/NAME becomes the text, whole or not at all; false with errno. */
bool keep(const char *directory, const char *name, const char *text);

bool write_all(int fd, const void *data, size_t size);

#endif
