/* File systems that the settings name. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <unistd.h>

enum { KERNEL_S = 10 };  /* for a mount, whose server may be silent */
enum { SERVER_S = 60 };  /* for a server that refuses connections, as one does that is being started */
enum { PAUSE_S = 5 };    /* the longest one between two tries */
enum { NO_LINKS = 256 }; /* MS_NOSYMFOLLOW of Linux 5.10 */

/* As the mount has them: a change of its size would reset options that it does not name. */
unsigned long flags_of(const char *options)
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

/* A name for locks. The client of another VM, of a sister that began in the same template or of an earlier run under the
 * same name, must not be taken for this one: the server would give the locks of one to the other. A server tells clients
 * apart by this name. It is never kept, and the image's own name, which many VMs have, is not used. */
static void name_nfs_client(void)
{
    static const char *const places[] = {"/sys/module/nfs/parameters/nfs4_unique_id", "/sys/fs/nfs/net/nfs_client/identifier"};
    unsigned char random[16];
    char name[2 * sizeof random + 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        fail(1, "no random numbers for the name of the NFS client");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(name + 2 * i, sizeof name - 2 * i, "%02x\n", random[i]);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int file = open(places[i], O_WRONLY | O_CLOEXEC);
        if (file >= 0 && !write_all(file, name, strlen(name)))
            fail(1, "cannot name the NFS client in %s", places[i]);
        close(file);
    }
}

static bool is_nfs(const char *type)
{
    return strcmp(type, "nfs") == 0 || strcmp(type, "nfs4") == 0;
}

enum module_state { ABSENT, LOADING, LIVE }; /* absent: also if it is a part of the kernel itself */

static enum module_state state_of_module(const char *module)
{
    char path[64], word[sizeof "live"] = "";
    snprintf(path, sizeof path, "/sys/module/%s/initstate", module);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file >= 0 ? read(file, word, sizeof word - 1) : -1;
    if (file >= 0)
        close(file);
    return size <= 0 ? ABSENT : strcmp(word, "live") == 0 ? LIVE : LOADING;
}

/* Small images load no modules by themselves. A guest that has just booted may be loading this one: then the file system is
 * known already, modprobe returns at once, and a mount would fail with "Protocol not supported" until the module is live.
 * modprobe looks into /proc/modules, where a module is a moment before it is in /sys/module. */
static void load_nfs(bool is_version_4)
{
    const char *module = is_version_4 ? "nfsv4" : "nfsv3";
    bool is_known = has_field(text_of_file("/proc/filesystems").bytes, '\t', 2, "nfs");
    if (state_of_module(module) == LIVE || (is_known && state_of_module("nfs") == ABSENT))
        return;
    bool is_there = run((const char *const[]){"modprobe", module, NULL}, true);
    if (!is_there)
        run((const char *const[]){"modprobe", "nfs", NULL}, true);
    for (int left = 100 * KERNEL_S; left > 0 && state_of_module(module) != LIVE; left--) {
        if (!is_there && state_of_module(module) == ABSENT)
            return;
        usleep(10000);
    }
}

/* By the type's own program if the image has one; `mount` would call it, too. */
static bool mount_by_program(const char *type, const char *source, const char *target, const char *options)
{
    char program[64];
    snprintf(program, sizeof program, "mount.%s", type);
    if (is_nfs(type) && has_program(program))
        return run((const char *const[]){program, source, target, "-o", options, NULL}, false);
    return run((const char *const[]){"mount", "-t", type, "-o", options, source, target, NULL}, false);
}

struct call {
    const char *source, *target, *type;
    unsigned long flags;
    const char *options;
    int *error; /* in memory that a child shares */
};

static bool call_mount(const void *what)
{
    const struct call *call = what;
    bool is_mounted = mount(call->source, call->target, call->type, call->flags, call->options) == 0;
    *call->error = is_mounted ? 0 : errno;
    return is_mounted;
}

/* The option with the version. For version 4 without a second number, the program has to find the number. */
static const char *const version_4[] = {"vers=4.0", "vers=4.1", "vers=4.2", "nfsvers=4.0", "nfsvers=4.1", "nfsvers=4.2", NULL};
static const char *const version_3[] = {"vers=3", "nfsvers=3", NULL};

static bool has_option(const char *options, const char *const words[])
{
    const char *option;
    for (int number = 1; *(option = field_of(options, ',', number)) != '\0'; number++)
        if (is_one_of(option, words))
            return true;
    return false;
}

/* Whether the kernel alone can mount it: NFS of a server named by its address, if locks need no daemon. An emulated guest
 * takes 0.1 s for the program. Version 4 carries locks itself; version 3 is for mounts without locks. */
static bool is_for_kernel(const char *type, const char *source, const char *options)
{
    static const char *const nolock[] = {"nolock", NULL};
    struct in_addr address;
    return is_nfs(type) &&
           (has_option(options, version_4) || (has_option(options, version_3) && has_option(options, nolock))) &&
           inet_pton(AF_INET, field_of(source, ':', 1), &address) == 1;
}

/* Also writes the error of the last try; 0 if there was no answer. */
static bool mount_by_kernel(const char *type, const char *source, const char *target, const char *options, int *error)
{
    /* These options are defaults, or are not for the kernel. */
    static const char *const left_out[] = {"defaults", "rw", "suid", "dev", "exec", "auto", "noauto", "_netdev", "nofail", NULL};
    struct text others = {NULL, 0};
    const char *option;
    text_add(&others, "addr=%s", field_of(source, ':', 1));
    for (int number = 1; *(option = field_of(options, ',', number)) != '\0'; number++)
        if (flags_of(option) == 0 && !is_one_of(option, left_out))
            text_add(&others, ",%s", option);
    *error = 0;
    return in_time(KERNEL_S, call_mount, &(const struct call){source, target, type, flags_of(options), others.bytes, error});
}

/* What a server says that may serve in a moment. */
static bool passes(int error)
{
    return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH || error == ENETUNREACH;
}

/* By the kernel if it can, with a server that refuses connections tried again and again: nothing of the job has begun, and
 * a VM that gives up is taken away with the job's allocation. */
static bool mount_in_time(const char *type, const char *source, const char *target, const char *options, int *error)
{
    if (!is_for_kernel(type, source, options))
        return false;
    for (unsigned waited = 0, pause = 1; !mount_by_kernel(type, source, target, options, error); waited += pause) {
        if (!passes(*error) || waited >= SERVER_S)
            return false;
        pause = 2 * waited < PAUSE_S ? waited + 1 : PAUSE_S;
        sleep(pause);
    }
    return true;
}

static void mount_line(const char *line)
{
    const char *source = field_of(line, ' ', 1), *target = field_of(line, ' ', 2), *type = field_of(line, ' ', 3);
    const char *options = field_of(line, ' ', 4);
    if (mount_at(target) != NULL)
        return;
    make_directories(target);
    if (is_nfs(type)) {
        load_nfs(!has_option(options, version_3));
        name_nfs_client();
    }
    int *error = mmap(NULL, sizeof *error, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (error == MAP_FAILED)
        fail(1, "no memory to mount %s", source);
    bool is_mounted = mount_in_time(type, source, target, options, error);
    if (!is_mounted && passes(*error))
        fail(1, "cannot mount %s on %s: for %d s its server has said: %s", source, target, SERVER_S, strerror(*error));
    /* A call that was given up may have mounted it at last, and the program would say that it is busy. */
    is_mounted = is_mounted || mount_at(target) != NULL;
    /* Mounts that the kernel refuses go to the program, as all others do. */
    if (!is_mounted && !mount_by_program(type, source, target, options) && mount_at(target) == NULL)
        fail(1, "cannot mount %s on %s", source, target);
    munmap(error, sizeof *error);
}

void mount_all(void)
{
    char *rest = text_of_file(VJOB_ETC "/mounts").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        mount_line(line);
}
