/* The tools that wait for answers to requests that are taken: each is watched, so that the end of one that says nothing any
 * more (`kill -9`) is news. */

#ifndef ASKERS_H
#define ASKERS_H

#include <poll.h>

enum { MOST_ASKERS = 64 }; /* the wrapper takes no more at a time */

void asker_watch(const char *id); /* of a request in ID.taken */

/* Fill in what poll shall wait for; returns how many. */
nfds_t askers_to_poll(struct pollfd some[MOST_ASKERS]);

/* Print `cancel ID` for each asker that has ended with its request still there. */
void askers_polled(const struct pollfd some[MOST_ASKERS]);

#endif
