/* The programs on a front, called by main.c. */

#ifndef FRONT_PROGRAMS_H
#define FRONT_PROGRAMS_H

int sentry_main(int argc, char **argv);
int shadow_main(int argc, char **argv);

#endif
