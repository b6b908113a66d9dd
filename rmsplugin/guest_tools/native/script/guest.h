/* The commands of rmsplugin-guest, each in a file of its name; each returns the exit code (docs/protocols.md, section 3). */

#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <sys/types.h>

bool is_stream(const char *name);

int room(off_t bytes);
#define NOT_KEPT "the files came incomplete, or do not fit"
bool take_files(void); /* of `put`; whether all of them are kept */
int put(void);
int start(void);
int begin(char **words); /* perhaps run NUMBER, then STREAM SIZE ..., ended by NULL */
int follow(const char *stream, off_t offset);
int wait_for_script(off_t from); /* and tell of steps, from that offset of their file on; -1: do not */
int control(void);
int acks(void);

#endif
