/* The file of srun --multi-prog: the program of each task (srun(1), "MULTIPLE PROGRAM CONFIGURATION"). */

#ifndef PROGRAMS_FILE_H
#define PROGRAMS_FILE_H

#include "protocol/plan.h"

/* A line of it, with its continuation lines. */
struct program {
    unsigned number; /* of its first line */
    char *tasks, *words;
};

struct programs {
    const char *path;
    size_t count;
    struct program *each;
};

/* All three end srun if the file is wrong, with Slurm's words. */
struct programs programs_read(const char *path);

/* Number of tasks: `ntasks` if that is given, else as many as the file names. */
uint32_t programs_count(const struct programs *programs, uint32_t ntasks, bool given);

/* The command of each task. `arguments` come after its words. */
struct command *programs_commands(const struct programs *programs, uint32_t ntasks, char **arguments, int count);

#endif
