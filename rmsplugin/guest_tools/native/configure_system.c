/* The VM's own name and all VMs' names, devices, time zone, name servers, sizes, mounts. */

#include "configure.h"

#include "files.h"
#include "texts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KERNEL_S = 10 }; /* for a mount, whose server may be silent */
enum { NO_LINKS = 256 }; /* MS_NOSYMFOLLOW of Linux 5.10 */

#define MARK "# rmsplugin" /* lines of ours in a file of the image end with it */

static bool is_ours(const char *line)
{
    size_t length = strlen(line), mark = strlen(MARK);
    return length >= mark && strcmp(line + length - mark, MARK) == 0;
}

/* A guest's hardware clock has whole seconds, and so had the one before it: its clock is up to two seconds behind that of the
 * server whose files it reads. What the engine tells is late by the way here, so nothing is set back; and one of two clocks that
 * are further apart is wrong, and nobody knows which. */
void set_clock(void)
{
    enum { BEHIND_S = 5 };
    struct timespec now, told = {0, 0};
    char line[LINE_BYTES];
    if (!read_line(ETC "/time", line) || sscanf(line, "%ld.%9ld", &told.tv_sec, &told.tv_nsec) != 2)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    double behind_s = difftime(told.tv_sec, now.tv_sec) + (double)(told.tv_nsec - now.tv_nsec) / 1e9;
    if (behind_s > 0 && behind_s < BEHIND_S)
        clock_settime(CLOCK_REALTIME, &told);
}

void set_names(const struct facts *facts)
{
    struct text hosts = {NULL, 0};
    char *rest = text_of_file("/etc/hosts").bytes, name[256] = "", own[256] = "";
    unsigned number = 0;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (!is_ours(line))
            text_add(&hosts, "%s\n", line);
    rest = text_of_file(ETC "/hosts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL; number++) {
        text_add(&hosts, "%s %s %s\n", field_of(line, ' ', 1), field_of(line, ' ', 2), MARK);
        if (number == facts->index)
            snprintf(name, sizeof name, "%s", field_of(line, ' ', 2));
    }
    rest = text_of_file(ETC "/site_hosts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        text_add(&hosts, "%s %s\n", line, MARK);
    gethostname(own, sizeof own);
    if (strcmp(own, name) != 0 && sethostname(name, strlen(name)) != 0)
        fail(1, "cannot set the host name: %s", strerror(errno));
    replace_file("/etc/hosts", &hosts);
}

/* Images without udev lack these, which scripts take for given: `<(...)` of bash is /dev/fd/N. */
void link_devices(void)
{
    static const char *const links[][2] = {
        {"/dev/fd", "/proc/self/fd"},
        {"/dev/stdin", "/proc/self/fd/0"},
        {"/dev/stdout", "/proc/self/fd/1"},
        {"/dev/stderr", "/proc/self/fd/2"},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (!exists(links[i][0]))
            link_to(links[i][1], links[i][0]);
}

/* By its name where the image has it, since some programs ask for that; else by its content. */
void set_time_zone(const struct facts *facts)
{
    char of_that_name[4096];
    struct text content = text_of_file(ETC "/localtime"), name = {NULL, 0};
    snprintf(of_that_name, sizeof of_that_name, "/usr/share/zoneinfo/%s", facts->timezone);
    if (*facts->timezone != '\0' && exists(of_that_name))
        link_to(of_that_name, "/etc/localtime");
    else if (content.length > 0) {
        replace_file("/etc/.localtime", &content);
        if (rename("/etc/.localtime", "/etc/localtime") != 0)
            fail(1, "cannot write /etc/localtime: %s", strerror(errno));
    }
    text_add(&name, "%s\n", facts->timezone);
    if (*facts->timezone != '\0')
        replace_file("/etc/timezone", &name);
}

void set_name_servers(void)
{
    char target[8];
    if (text_of_file(ETC "/resolv.conf").length == 0)
        return;
    /* A link leads to a file of a service that would write it again. */
    if (readlink("/etc/resolv.conf", target, sizeof target) > 0)
        unlink("/etc/resolv.conf");
    copy_file(ETC "/resolv.conf", "/etc/resolv.conf");
}

/* As the mount has them: what a change of its size does not name would be taken back. */
static unsigned long flags_of(const char *options)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } known[] = {
        {"ro", MS_RDONLY},         {"nosuid", MS_NOSUID},         {"nodev", MS_NODEV},       {"noexec", MS_NOEXEC},
        {"noatime", MS_NOATIME},   {"nodiratime", MS_NODIRATIME}, {"relatime", MS_RELATIME}, {"sync", MS_SYNCHRONOUS},
        {"dirsync", MS_DIRSYNC},   {"mand", MS_MANDLOCK},         {"nosymfollow", NO_LINKS},
    };
    unsigned long flags = 0;
    const char *option;
    for (int number = 1; *(option = field_of(options, ',', number)) != '\0'; number++)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strcmp(option, known[i].name) == 0)
                flags |= known[i].flag;
    return flags;
}

/* Of a directory in memory; without a size, it is as the image has it. */
void bound_size(const char *directory, const char *size)
{
    char option[256];
    const char *line = *size == '\0' ? NULL : mount_at(directory);
    if (line == NULL || strcmp(field_of(line, ' ', 3), "tmpfs") != 0)
        return;
    snprintf(option, sizeof option, "size=%s", size);
    if (mount(NULL, directory, NULL, MS_REMOUNT | flags_of(field_of(line, ' ', 4)), option) != 0)
        fail(1, "cannot give %s the size %s: %s", directory, size, strerror(errno));
}

/* Small images load nothing by themselves. */
static void load_nfs(void)
{
    if (!has_field(text_of_file("/proc/filesystems").bytes, '\t', 2, "nfs") &&
        !run((const char *const[]){"modprobe", "nfsv3", NULL}, true))
        run((const char *const[]){"modprobe", "nfs", NULL}, true);
}

/* By the type's own program where the image has one, which is what `mount` would call. */
static bool mount_by_program(const char *type, const char *source, const char *target, const char *options)
{
    char program[64];
    snprintf(program, sizeof program, "mount.%s", type);
    if (strncmp(type, "nfs", 3) == 0 && has_program(program))
        return run((const char *const[]){program, source, target, "-o", options, NULL}, false);
    return run((const char *const[]){"mount", "-t", type, "-o", options, source, target, NULL}, false);
}

struct call {
    const char *source, *target, *type;
    unsigned long flags;
    const char *options;
};

static bool call_mount(const void *what)
{
    const struct call *call = what;
    return mount(call->source, call->target, call->type, call->flags, call->options) == 0;
}

/* NFS of version 3 without locks of a server that is named by its address is mounted by the kernel alone: an emulated guest
 * takes 0.1 s for the program. What the kernel does not take is the program's, as all others are. */
static bool mount_by_kernel(const char *type, const char *source, const char *target, const char *options)
{
    static const char *const version_3[] = {"vers=3", "nfsvers=3", NULL};
    /* They say what is so anyway, or are not for the kernel. */
    static const char *const left_out[] = {"defaults", "rw", "suid", "dev", "exec", "auto", "noauto", "_netdev", "nofail", NULL};
    struct text others = {NULL, 0};
    struct in_addr address;
    const char *option, *server = field_of(source, ':', 1);
    bool is_version_3 = false, has_locks = true;
    text_add(&others, "addr=%s", server);
    for (int number = 1; *(option = field_of(options, ',', number)) != '\0'; number++) {
        is_version_3 = is_version_3 || is_one_of(option, version_3);
        has_locks = has_locks && strcmp(option, "nolock") != 0;
        if (flags_of(option) == 0 && !is_one_of(option, left_out))
            text_add(&others, ",%s", option);
    }
    return strcmp(type, "nfs") == 0 && is_version_3 && !has_locks && inet_pton(AF_INET, server, &address) == 1 &&
           in_time(KERNEL_S, call_mount, &(const struct call){source, target, type, flags_of(options), others.bytes});
}

static void mount_line(const char *line)
{
    const char *source = field_of(line, ' ', 1), *target = field_of(line, ' ', 2), *type = field_of(line, ' ', 3);
    if (mount_at(target) != NULL)
        return;
    make_directories(target);
    if (strncmp(type, "nfs", 3) == 0)
        load_nfs();
    const char *options = field_of(line, ' ', 4);
    if (!mount_by_kernel(type, source, target, options) && !mount_by_program(type, source, target, options))
        fail(1, "cannot mount %s on %s", source, target);
}

void mount_all(void)
{
    char *rest = text_of_file(ETC "/mounts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        mount_line(line);
}

void make_home(const struct facts *facts)
{
    struct stat status;
    if (stat(facts->home, &status) == 0 && S_ISDIR(status.st_mode))
        return;
    make_directories(facts->home);
    chmod(facts->home, 0700);
    give_to(facts->home, facts);
}
