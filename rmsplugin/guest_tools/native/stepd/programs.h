/* The program that runs steps, called by main.c. */

#ifndef STEPD_PROGRAMS_H
#define STEPD_PROGRAMS_H

int stepd_main(int argc, char **argv);

#endif
