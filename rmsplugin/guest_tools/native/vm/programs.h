/* The programs that make a VM one of its vjob, called by main.c. */

#ifndef VM_PROGRAMS_H
#define VM_PROGRAMS_H

int account_main(int argc, char **argv);
int configure_main(int argc, char **argv);
int login_shell_main(int argc, char **argv);

#endif
