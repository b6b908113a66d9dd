/* The VM's own name and all VMs' names, devices, time zone, name servers, sizes. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MARK "# rmsplugin" /* lines of ours in a file of the image end with it */

static bool is_ours(const char *line)
{
    size_t length = strlen(line), mark = strlen(MARK);
    return length >= mark && strcmp(line + length - mark, MARK) == 0;
}

/* A guest's hardware clock has whole seconds, and so had the one before it: its clock is up to two seconds behind that of the
 * server whose files it reads. The engine's time is late by its way to the guest, so the clock is never set back. If two clocks
 * are further apart, one of them is wrong, and it is unknown which. */
void set_clock(void)
{
    enum { BEHIND_S = 5 };
    struct timespec now, told = {0, 0};
    char line[LINE_BYTES];
    if (!read_line(VJOB_ETC "/time", line) || sscanf(line, "%ld.%9ld", &told.tv_sec, &told.tv_nsec) != 2)
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
    rest = text_of_file(VJOB_ETC "/hosts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL; number++) {
        text_add(&hosts, "%s %s %s\n", field_of(line, ' ', 1), field_of(line, ' ', 2), MARK);
        if (number == facts->index)
            snprintf(name, sizeof name, "%s", field_of(line, ' ', 2));
    }
    rest = text_of_file(VJOB_ETC "/site_hosts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        text_add(&hosts, "%s %s\n", line, MARK);
    gethostname(own, sizeof own);
    if (strcmp(own, name) != 0 && sethostname(name, strlen(name)) != 0)
        fail(1, "cannot set the host name: %s", strerror(errno));
    replace_file("/etc/hosts", &hosts);
}

/* Images without udev lack these, and scripts rely on them: `<(...)` of bash is /dev/fd/N. */
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

/* By its name if the image has it, since some programs ask for the name; else by its content. */
void set_time_zone(const struct facts *facts)
{
    char of_that_name[4096];
    struct text content = text_of_file(VJOB_ETC "/localtime"), name = {NULL, 0};
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
    if (text_of_file(VJOB_ETC "/resolv.conf").length == 0)
        return;
    /* A link leads to a file of a service that would write it again. */
    if (readlink("/etc/resolv.conf", target, sizeof target) > 0)
        unlink("/etc/resolv.conf");
    copy_file(VJOB_ETC "/resolv.conf", "/etc/resolv.conf");
}

/* The mount of a directory in memory; without a size, it is as the image has it. */
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

void make_home(const struct facts *facts)
{
    struct stat status;
    if (stat(facts->home, &status) == 0 && S_ISDIR(status.st_mode))
        return;
    make_directories(facts->home);
    chmod(facts->home, 0700);
    give_to(facts->home, facts);
}
