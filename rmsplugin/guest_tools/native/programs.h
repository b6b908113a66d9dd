/* The programs of vjob-tools, by name. */

#ifndef PROGRAMS_H
#define PROGRAMS_H

int srun_main(int argc, char **argv);
int stepd_main(int argc, char **argv);

#define PROGRAMS {"srun", srun_main}, {"stepd", stepd_main},

#endif
