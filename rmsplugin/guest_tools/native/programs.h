/* The programs of vjob-tools, by name. */

#ifndef PROGRAMS_H
#define PROGRAMS_H

int guest_main(int argc, char **argv);
int relay_main(int argc, char **argv);

#define PROGRAMS {"rmsplugin-guest", guest_main}, {"relay", relay_main},

#endif
