/* identity: the guest becomes the VM that its configuration names. It gets that from the hypervisor (QEMU's fw_cfg); user,
 * mounts, tools and a clock that is exact come from the engine, over ssh.
 *
 * A guest that is told to wait is going to be saved as a template here, where it has nothing of its own yet. Restored as
 * whatever VM, it finds the configuration of that one in the same place. From there on somebody waits for it, and an emulated
 * guest takes 15 to 30 ms for each program. So this one does it all, and the ssh server has started, too: it waits at a pipe in
 * the place of its key. */

#include "image.h"

#include "base/files.h"
#include "base/texts.h"
#include "programs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONFIG "/sys/firmware/qemu_fw_cfg/by_name/opt/org.rmsplugin/config/raw"
#define END "\nend="
#define CONSOLE "/dev/console"

enum { POLL_US = 5000, LISTEN_US = 20000, SEED_BYTES = 256, BEGINNING_BYTES = 1024 };
enum { ADD_ENTROPY = 0x40085203, RESEED = 0x5207 }; /* RNDADDENTROPY, RNDRESEEDCRNG of <linux/random.h>, which musl has not */

static void say(const char *what)
{
    int console = open(CONSOLE, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    dprintf(console, "rmsplugin-guest: %s\n", what);
    close(console);
}

static bool is_told_to_wait(void)
{
    static const char word[] = "wait\n";
    char begin[sizeof word - 1];
    int fd = open(CONFIG, O_RDONLY | O_CLOEXEC);
    bool told = fd >= 0 && read(fd, begin, sizeof begin) == sizeof begin && memcmp(begin, word, sizeof begin) == 0;
    if (fd >= 0)
        close(fd);
    return told;
}

static void load_module(const char *name)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("modprobe", "modprobe", name, (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    waitpid(child, NULL, 0);
}

/* The hardware clock is the host's: the guest's own is of the time when the template was saved. */
static void set_clock_by_hardware(void)
{
    off_t seconds = read_number("/sys/class/rtc/rtc0/since_epoch", 0);
    if (seconds > 0)
        clock_settime(CLOCK_REALTIME, &(const struct timespec){.tv_sec = seconds});
}

static void await_configuration(void)
{
    load_module("nfsv4");
    load_module("nfsv3");
    await_card();
    clear_free_memory();
    say("waiting");
    while (is_told_to_wait())
        usleep(POLL_US);
    set_clock_by_hardware();
}

/* The lines before the line "end=", if that is among the first bytes; else NULL. An emulated guest takes 5 us for each byte. */
static const char *read_beginning(void)
{
    static char lines[BEGINNING_BYTES + 1];
    int fd = open(CONFIG, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, lines, BEGINNING_BYTES) : 0;
    if (fd >= 0)
        close(fd);
    lines[size > 0 ? size : 0] = '\0';
    char *end = strstr(lines, END);
    if (end == NULL)
        return NULL;
    end[1] = '\0';
    return lines;
}

static void set_name(const char *name, const char *address)
{
    if (*name == '\0')
        name = "guest";
    sethostname(name, strlen(name));
    write_name(name, address);
}

/* KEY=VALUE lines, of which no value is ever evaluated. Only images that wait are told where they end before the file does. */
static const char *read_configuration(void)
{
    const char *beginning = read_beginning();
    if (beginning != NULL)
        return beginning;
    char *lines = text_of_file(CONFIG).bytes, *end = strstr(lines, END);
    if (end != NULL)
        end[1] = '\0';
    return lines;
}

/* Two guests restored from one state would give out the same numbers. What is only written to /dev/urandom counts when the kernel
 * reseeds by itself, up to a minute later; Debian's kernel for clouds has no driver of the VM generation ID. The seed is as good
 * as random: a generator that had too little for its beginning until now, and so is not reseeded, begins with it. */
static void reseed(const char *seed)
{
    struct {
        int bits, size;
        unsigned char bytes[SEED_BYTES];
    } entropy;
    if (*seed == '\0')
        return;
    ssize_t size = decode_base64(seed, entropy.bytes, sizeof entropy.bytes);
    int generator = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
    entropy.size = (int)size;
    entropy.bits = entropy.size * 8;
    if (size <= 0 || ioctl(generator, ADD_ENTROPY, &entropy) != 0 || ioctl(generator, RESEED) != 0)
        fail(1, "its random numbers would be those of others");
    close(generator);
}

/* The server reads the key from the pipe. Should it begin anew, it reads it from the file that is in the pipe's place then.
 * Without a key there is no server. */
static bool let_listen(int pipe, const char *encoded)
{
    unsigned char key[KEY_BYTES];
    ssize_t size = keep_host_key(encoded, key);
    if (size > 0)
        write_all(pipe, key, (size_t)size);
    else
        unlink(HOST_KEY);
    close(pipe);
    return size > 0;
}

static void await_listening(void)
{
    static const char listens[] = ":0016 00000000:0000 0A"; /* port 22, to nobody, the state LISTEN */
    for (bool found = false; !found;) {
        struct text sockets = text_of_file("/proc/net/tcp");
        found = strstr(sockets.bytes, listens) != NULL;
        free(sockets.bytes);
        if (!found)
            usleep(LISTEN_US);
    }
}

int identity_main(int argc, char **argv)
{
    if (argc != 1) {
        fprintf(stderr, "usage: %s\n", argv[0]);
        return 2;
    }
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    int pipe = open(HOST_KEY, O_WRONLY | O_CLOEXEC); /* returns when the server is at its other end */
    bool waits = is_told_to_wait();
    if (waits)
        await_configuration();
    const char *config = read_configuration();
    reseed(value_of(config, "seed"));
    authorise(value_of(config, "root_authorized_key"));
    /* Before the card is up: whoever finds the guest finds its server, instead of being refused and asking again later. */
    bool listens = let_listen(pipe, value_of(config, "dropbear_host_key"));
    set_network(config);
    set_name(value_of(config, "hostname"), value_of(config, "address"));
    if (!listens) {
        say("ready, without a host key: no ssh");
        return EXIT_SUCCESS;
    }
    await_listening();
    say("ready");
    if (!waits)
        load_module("nfsv4"); /* wanted soon, but not at once; by nobody where no engine can say what to mount */
    return EXIT_SUCCESS;
}
