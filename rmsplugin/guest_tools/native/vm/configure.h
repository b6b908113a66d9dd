/* Configure: make this VM one of its vjob. */

#ifndef CONFIGURE_H
#define CONFIGURE_H

#include <stdbool.h>
#include <sys/types.h>

#define LOGIN_SHELL VJOB_BIN "/login-shell"

/* The values of etc/vjob. */
struct facts {
    unsigned index;
    uid_t uid;
    gid_t gid;
    const char *user, *gecos, *home, *timezone, *tmp_size, *shm_size, *script;
    bool commands; /* Slurm's commands can be used from inside */
};

void make_account(const struct facts *facts);
void authorise_key(const struct facts *facts);
void write_ssh_config(const struct facts *facts);

void set_clock(void);
void set_names(const struct facts *facts);
void link_devices(void);
void set_time_zone(const struct facts *facts);
void set_name_servers(void);
void bound_size(const char *directory, const char *size);
void mount_all(void);
unsigned long flags_of(const char *options); /* for mount(2) */
void make_home(const struct facts *facts);

void make_job_directory(const struct facts *facts);
void make_script_file(const struct facts *facts);
void begin_account(const struct facts *facts);
void link_commands(const struct facts *facts);
void start_relays(const struct facts *facts);

/* Small steps that all parts use; each ends the program if it fails. */
void make_directories(const char *path); /* as mkdir -p */
void give_to(const char *path, const struct facts *facts);
void link_to(const char *target, const char *path); /* in place of any file there */
bool has_program(const char *name);
bool in_time(unsigned seconds, bool (*act)(const void *what), const void *what); /* whether a child did so in time */
bool run(const char *const words[], bool silent); /* a program of the image; whether it ended with 0 within a minute */
pid_t run_apart(const char *const words[]); /* a program that goes on, in a session of its own */
const char *mount_at(const char *target); /* the line of /proc/mounts of the last mount there; NULL if there is none */

#endif
