/* The programs that start and watch the user's script, called by main.c. */

#ifndef SCRIPT_PROGRAMS_H
#define SCRIPT_PROGRAMS_H

int guest_main(int argc, char **argv);
int relay_main(int argc, char **argv);

#endif
