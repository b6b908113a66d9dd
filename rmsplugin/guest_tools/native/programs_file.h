/* The file of --multi-prog: which tasks run which command. */

#ifndef PROGRAMS_FILE_H
#define PROGRAMS_FILE_H

#include "plan.h"

/* Read it into commands, one for each task (index = task). Ends the program when it is not right. */
struct command *programs_read(const char *path, uint32_t ntasks, char **arguments, int count);

#endif
