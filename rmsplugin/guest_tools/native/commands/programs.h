/* The program of the commands of Slurm that a job's script calls, called by main.c. */

#ifndef COMMANDS_PROGRAMS_H
#define COMMANDS_PROGRAMS_H

int commands_main(int argc, char **argv);

#endif
