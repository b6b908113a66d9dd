/* The programs of the small guest image (contrib/guest-image), called by main.c. */

#ifndef IMAGE_PROGRAMS_H
#define IMAGE_PROGRAMS_H

int container_main(int argc, char **argv);
int identity_main(int argc, char **argv);
int init_main(int argc, char **argv);

#endif
