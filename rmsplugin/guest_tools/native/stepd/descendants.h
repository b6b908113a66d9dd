/* The processes that come from this one, which has to be their subreaper. */

#ifndef DESCENDANTS_H
#define DESCENDANTS_H

#include <stdbool.h>

void signal_descendants(int number);
bool has_descendants(void);

#endif
