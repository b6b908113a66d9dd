/* The program that asks for steps, called by main.c. */

#ifndef SRUN_PROGRAMS_H
#define SRUN_PROGRAMS_H

int srun_main(int argc, char **argv);

#endif
