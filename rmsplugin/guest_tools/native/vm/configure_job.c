/* The job's directory, the watcher of its use, its commands, and the relays of its output. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the image's files lie on a disk. */
static bool has_disk(void)
{
    static const char *const of_disks[] = {"xfs", "btrfs", "f2fs", NULL};
    const char *root = mount_at("/"), *type = root != NULL ? field_of(root, ' ', 3) : "";
    return is_one_of(type, of_disks) || strncmp(type, "ext", 3) == 0;
}

static void make_users(const char *path, const struct facts *facts)
{
    char inside[PATH_BYTES];
    path_to(inside, path, ".", ""); /* it may be a link */
    if (chmod(inside, 0700) != 0)
        fail(1, "cannot make %s the user's: %s", path, strerror(errno));
    give_to(inside, facts);
}

/* /run/rmsplugin/NAME; on the image's disk, if it has one, rather than in memory. */
static void make_directory(const char *name)
{
    char path[PATH_BYTES], place[PATH_BYTES];
    if (exists(path_to(path, VJOB_RUN, name, "")))
        return;
    if (has_disk()) {
        make_directories(path_to(place, "/var/lib/rmsplugin", name, ""));
        link_to(place, path);
    } else
        make_directories(path);
}

void make_job_directory(const struct facts *facts)
{
    make_directory("job");
    make_users(VJOB_JOB, facts);
    make_directories(VJOB_STATE);
    make_users(VJOB_STATE, facts);
}

/* A new directory, as slurmd makes one for a job, with an empty file in it that the user fills with the script (put.c).
 * No existing file is changed, no link is followed, and nothing is made outside the image's own file system, for
 * another may be the site's. If that leaves no way, the script lies only in JOB. */
void make_script_file(const struct facts *facts)
{
    struct stat root, status;
    bool made = false;
    char target[8];
    char *rest = NULL, *name = strtok_r(strdup(facts->script), "/", &rest), *next;
    int place = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (facts->index != 0 || name == NULL || readlink(VJOB_SCRIPT, target, sizeof target) > 0 || fstat(place, &root) != 0)
        return;
    for (; (next = strtok_r(NULL, "/", &rest)) != NULL; name = next) {
        made = mkdirat(place, name, 0755) == 0;
        place = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (place < 0 || fstat(place, &status) != 0 || status.st_dev != root.st_dev)
            return;
    }
    if (!made || fchown(place, (uid_t)-1, facts->gid) != 0 || fchmod(place, 0750) != 0)
        return;
    int file = openat(place, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 && fchown(file, facts->uid, (gid_t)-1) == 0)
        link_to(facts->script, VJOB_SCRIPT);
}

/* The place of the control groups of version 2; they are mounted if they are not. */
static const char *hierarchy(bool mount_it)
{
    char *rest = text_of_file("/proc/mounts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (strcmp(field_of(line, ' ', 3), "cgroup2") == 0)
            return strdup(field_of(line, ' ', 2));
    if (!mount_it || mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return NULL;
    return hierarchy(false);
}

static void keep_available(void)
{
    char *rest = text_of_file("/proc/meminfo").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (strcmp(field_of(line, ' ', 1), "MemAvailable:") == 0) {
            struct text kib = {NULL, 0};
            text_add(&kib, "%s\n", field_of(line, ' ', 2));
            replace_file(VJOB_USAGE "/available", &kib);
        }
}

/* Whether the user's processes may enter the group. A process that moves another writes to the group and to the one above both.
 * By that, the user can only leave, or have processes of root's counted as the job's. */
static bool open_group(const char *root, const struct facts *facts)
{
    static const char *const procs[] = {"cgroup.procs", "rmsplugin-job/cgroup.procs"};
    char path[4096];
    for (size_t i = 0; i < sizeof procs / sizeof *procs; i++) {
        snprintf(path, sizeof path, "%s/%s", root, procs[i]);
        if (chown(path, facts->uid, (gid_t)-1) != 0)
            return false;
    }
    return true;
}

/* A control group for the job's processes, and its watcher (account). If there can be none, nothing is counted. */
void begin_account(const struct facts *facts)
{
    char path[4096];
    make_directories(VJOB_USAGE);
    if (text_of_file(VJOB_USAGE "/available").length == 0)
        keep_available();
    const char *root = exists(VJOB_GROUP) ? NULL : hierarchy(true);
    if (root == NULL)
        return;
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", root);
    int control = open(path, O_WRONLY | O_CLOEXEC);
    if (control >= 0) {
        write_all(control, "+memory\n", 8);
        close(control);
    }
    snprintf(path, sizeof path, "%s/rmsplugin-job", root);
    mkdir(path, 0777);
    if (!open_group(root, facts))
        return;
    link_to(path, VJOB_GROUP);
    run_apart((const char *const[]){VJOB_BIN "/account", "watch", NULL});
}

/* Slurm's clients by their names (slurm-client), on the script's PATH. For login shells and start files that set
 * another PATH, they also stand where a node has them, unless the image has programs of its own there. */
void link_commands(const struct facts *facts)
{
    static const char *const names[] = {"srun", "sbcast", "sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sdiag",
                                        "sinfo", "sprio", "squeue", "sreport", "sshare", "sstat", "strigger", "salloc",
                                        "sattach", "scrontab", "sview"};
    char ours[PATH_BYTES], theirs[PATH_BYTES];
    size_t number = facts->commands ? sizeof names / sizeof *names : 1;
    make_directories("/usr/bin");
    for (size_t i = 0; i < number; i++) {
        if (!exists(path_to(ours, VJOB_BIN, names[i], "")))
            link_to("slurm-client", ours);
        /* A read-only file system does without them. */
        if (!has_program(names[i]) && symlink(ours, path_to(theirs, "/usr/bin", names[i], "")) != 0)
            continue;
    }
}

static void make_output_file(const char *path, mode_t mode, const char *content, const struct facts *facts)
{
    int fd = exists(path) ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        write_all(fd, content, strlen(content));
        close(fd);
    }
    if (chmod(path, mode) != 0)
        fail(1, "cannot make %s: %s", path, strerror(errno));
    give_to(path, facts);
}

static void make_pipe(const char *path)
{
    struct stat status;
    if ((stat(path, &status) != 0 || !S_ISFIFO(status.st_mode)) && mkfifo(path, 0600) != 0)
        fail(1, "cannot make %s: %s", path, strerror(errno));
}

static void start_relay(const char *stream)
{
    char path[PATH_BYTES];
    struct text text = {NULL, 0};
    off_t relay = read_number(path_to(path, VJOB_OUTPUT, stream, ".relay"), 0);
    if (relay > 0 && kill((pid_t)relay, 0) == 0)
        return;
    text_add(&text, "%d\n", (int)run_apart((const char *const[]){VJOB_BIN "/relay", stream, NULL}));
    replace_file(path, &text);
}

/* The script writes into pipes, and root's relays take its output from them: a user who kills all own processes
 * (`kill -9 -1`) loses no output. The directory is root's, so that nobody can replace one of these files. */
void start_relays(const struct facts *facts)
{
    static const char *const streams[] = {"stdout", "stderr"};
    char path[PATH_BYTES];
    if (facts->index != 0)
        return;
    make_directory("output");
    for (size_t i = 0; i < 2; i++) {
        make_pipe(path_to(path, VJOB_OUTPUT, streams[i], ".pipe"));
        make_output_file(path, 0600, "", facts);
        make_pipe(path_to(path, VJOB_OUTPUT, streams[i], ".wake"));
        give_to(path, facts);
        make_output_file(path_to(path, VJOB_OUTPUT, streams[i], ""), 0400, "", facts);
        /* The file has some content, which is overwritten later: that takes no room on a full disk. */
        make_output_file(path_to(path, VJOB_OUTPUT, streams[i], ".acked"), 0600, "0\n", facts);
        start_relay(streams[i]);
    }
}
