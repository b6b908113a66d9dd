/* init: the first process of the guest. It mounts what every Linux has, loads drivers, and becomes busybox's init, which runs
 * the ssh server and `identity`. */

#include "image.h"

#include "base/files.h"
#include "base/texts.h"
#include "programs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { PLAIN = MS_NOSUID | MS_NODEV };

static const struct {
    const char *target, *type;
    unsigned long flags;
    const char *options;
} mounts[] = {
    {"/proc", "proc", PLAIN | MS_NOEXEC, NULL},
    {"/sys", "sysfs", PLAIN | MS_NOEXEC, NULL},
    {"/dev", "devtmpfs", MS_NOSUID, "mode=755"},
    {"/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=620,gid=5,ptmxmode=666"},
    {"/dev/shm", "tmpfs", PLAIN, "mode=1777"},
    {"/tmp", "tmpfs", PLAIN, "mode=1777"},
    {"/run", "tmpfs", PLAIN, "mode=755"},
};

static void mount_all(void)
{
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        mkdir(mounts[i].target, 0755);
        if (mount(mounts[i].type, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].options) != 0)
            fail(1, "cannot mount %s", mounts[i].target);
    }
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", PLAIN | MS_NOEXEC, NULL); /* for `account`, if the kernel has it */
}

/* The modules of boot.list, in their order. */
static void load_drivers(void)
{
    struct utsname system;
    char path[512];
    uname(&system);
    snprintf(path, sizeof path, "/lib/modules/%s/boot.list", system.release);
    char *rest = text_of_file(path).bytes;
    for (char *name; (name = next_line(&rest)) != NULL;) {
        snprintf(path, sizeof path, "/lib/modules/%s/%s", system.release, name);
        int module = open(path, O_RDONLY | O_CLOEXEC);
        syscall(SYS_finit_module, module, "", 0);
        close(module);
    }
}

int init_main(int argc, char **argv)
{
    (void)argc;
    umask(022);
    mount_all();
    mkdir("/root/.ssh", 0700);
    mkdir("/etc/dropbear", 0700);
    mkfifo(HOST_KEY, 0600);
    load_drivers();
    /* No user namespaces: most holes of kernels that let users be root begin in one. */
    write_file("/proc/sys/user/max_user_namespaces", "0\n", 0644);
    /* Linux holds up to a tenth of the memory back for a while when kinds of memory mix in a block. A job would see less than what
     * it asked for, by chance. */
    write_file("/proc/sys/vm/watermark_boost_factor", "0\n", 0644);
    bring_up("lo");
    keep_accounts();
    execv("/sbin/init", argv);
    fail(127, "there is no /sbin/init");
}
