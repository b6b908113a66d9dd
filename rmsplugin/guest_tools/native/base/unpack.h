/* Unpack: a tar archive of plain files and links, as Python's tarfile writes it, becomes files. */

#ifndef UNPACK_H
#define UNPACK_H

#include <stdbool.h>

/* Read the archive to its end and make its files in the directory, each in the place of whatever had its name. False if it
 * is incomplete or another kind of archive; then some files may be there. */
bool unpack(int archive, const char *directory);

/* What is sent has to be read, or its sender would see a broken connection. False if it broke. */
bool read_to_end(int fd);

int unpack_main(int argc, char **argv); /* the program `unpack` */

#endif
