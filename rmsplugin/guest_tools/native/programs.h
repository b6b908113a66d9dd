/* The programs of vjob-tools, by name. */

#ifndef PROGRAMS_H
#define PROGRAMS_H

int account_main(int argc, char **argv);
int commands_main(int argc, char **argv);
int configure_main(int argc, char **argv);
int guest_main(int argc, char **argv);
int login_shell_main(int argc, char **argv);
int relay_main(int argc, char **argv);
int sentry_main(int argc, char **argv);
int shadow_main(int argc, char **argv);
int srun_main(int argc, char **argv);
int stepd_main(int argc, char **argv);
int unpack_main(int argc, char **argv);

#define PROGRAMS \
    {"account", account_main}, {"commands", commands_main}, {"configure", configure_main}, \
    {"login-shell", login_shell_main}, {"relay", relay_main}, {"rmsplugin-guest", guest_main}, \
    {"sentry", sentry_main}, {"shadow", shadow_main}, {"srun", srun_main}, {"stepd", stepd_main}, \
    {"unpack", unpack_main},

#endif
