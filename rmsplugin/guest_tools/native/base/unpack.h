/* Unpack: a tar archive of plain files and links, as Python's tarfile writes it, becomes files. */

#ifndef UNPACK_H
#define UNPACK_H

#include <stdbool.h>

/* Read the archive to its end and make its files in the directory, each in place of any file of its name. False if the archive
 * is incomplete or of another kind; then some files may be there. */
bool unpack(int archive, const char *directory);

/* Sent data has to be read, or its sender would see a broken connection. False if the connection broke. */
bool read_to_end(int fd);

int unpack_main(int argc, char **argv); /* the program `unpack` */

#endif
