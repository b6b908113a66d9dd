/* configure: host names, the user's account, ssh keys, mounts, the job's directory. Run as root by the engine after it has
 * put bin/ and etc/ here; may be run again at any time. It is a program because a shell starts others for each of these
 * small steps: an emulated guest takes 30 to 100 ms for each, while a job's start waits. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *needed(const char *vjob, const char *key)
{
    const char *value = value_of(vjob, key);
    if (*value == '\0')
        fail(1, "%s/vjob has no %s", VJOB_ETC, key);
    return value;
}

static unsigned number_of(const char *vjob, const char *key)
{
    off_t number;
    if (!parse_number(needed(vjob, key), &number))
        fail(1, "%s/vjob: %s is no number", VJOB_ETC, key);
    return (unsigned)number;
}

static struct facts read_facts(void)
{
    const char *vjob = text_of_file(VJOB_ETC "/vjob").bytes;
    return (struct facts){
        .index = number_of(vjob, "index"),
        .uid = number_of(vjob, "uid"),
        .gid = number_of(vjob, "gid"),
        .user = needed(vjob, "user"),
        .gecos = value_of(vjob, "gecos"),
        .home = needed(vjob, "home"),
        .timezone = value_of(vjob, "timezone"),
        .tmp_size = value_of(vjob, "tmp_size"),
        .shm_size = value_of(vjob, "shm_size"),
        .script = value_of(vjob, "script"),
        .commands = strcmp(value_of(vjob, "commands"), "1") == 0,
    };
}

int configure_main(int argc, char **argv)
{
    if (argc != 1) {
        fprintf(stderr, "usage: %s\n", argv[0]);
        return 2;
    }
    umask(022);
    signal(SIGCHLD, SIG_DFL); /* if the signal is ignored, no child can be waited for (`run`) */
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    const struct facts facts = read_facts();
    set_clock();
    set_names(&facts);
    make_account(&facts);
    authorise_key(&facts);
    write_ssh_config(&facts);
    link_devices();
    set_time_zone(&facts);
    set_name_servers();
    bound_size("/tmp", facts.tmp_size);
    bound_size("/dev/shm", facts.shm_size);
    mount_all();
    make_home(&facts);
    make_job_directory(&facts);
    make_script_file(&facts);
    begin_account(&facts);
    link_commands(&facts);
    start_relays(&facts);
    return EXIT_SUCCESS;
}
