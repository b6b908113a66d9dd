/* account: the use of this VM by the job's processes: a control group of version 2 holds all of them, which `configure` makes;
 * and a watcher of the group. Run as root.
 *
 *   watch   looks at the group now and then: the kernel does not record the maximum of memory without its caches for files,
 *           and the bytes that ended processes have read and written are told only by their parents
 *   print   the use up to now, KEY=VALUE a line; nothing if the kernel has no such groups
 *
 * CPU time is exact. Memory and disk are looked at as often as natively: at first twice a second, later less. */

#include "base/files.h"
#include "base/processes.h"
#include "base/texts.h"
#include "programs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAXIMUM_DIGITS = 15, USERS_BYTES = 512, LOOKS = 5, LOOK_US = 100000 };

struct used {
    long long memory, read, written; /* bytes */
};

static long long larger(long long one, long long other)
{
    return one > other ? one : other;
}

/* The number behind the key, in lines of `KEY NUMBER` or `KEY: NUMBER`; 0 if there is none. */
static long long value_behind(const char *lines, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = lines; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0 || line[length] != ' ')
            continue;
        size_t digits = strspn(line + length + 1, "0123456789");
        return digits > 0 && digits <= MAXIMUM_DIGITS ? atoll(line + length + 1) : 0;
    }
    return 0;
}

static void add_lines(struct used *used, const char *lines)
{
    used->read += value_behind(lines, "rchar:");
    used->written += value_behind(lines, "wchar:");
}

static void add_io_of(struct used *used, pid_t pid)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    struct text lines = text_of_file(path);
    add_lines(used, lines.bytes);
    free(lines.bytes);
}

/* The beginning of a file in the user's directory, which may hold anything. False if it is no file. */
static bool read_users(const char *path, char text[USERS_BYTES])
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is_file = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t size = is_file ? read(fd, text, USERS_BYTES - 1) : 0;
    text[size > 0 ? size : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return is_file;
}

/* The script's zombie is in no group, and has its children's numbers; its last numbers are in state/io. */
static void add_ended_script(struct used *used, const char *in_group)
{
    char told[USERS_BYTES], pid[USERS_BYTES];
    off_t script;
    if (read_users(VJOB_STATE "/io", told))
        add_lines(used, told);
    else if (read_users(VJOB_STATE "/pid", pid)) {
        pid[strcspn(pid, "\n")] = '\0';
        if (parse_number(pid, &script) && script > 0 && !has_field(in_group, '\n', 1, pid))
            add_io_of(used, (pid_t)script);
    }
}

/* The present use. The watch looks for as long as the VM lives: all is freed. */
static struct used look(bool script_too)
{
    struct text memory = text_of_file(VJOB_GROUP "/memory.stat"), processes = text_of_file(VJOB_GROUP "/cgroup.procs");
    struct used used = {.memory = read_number(VJOB_GROUP "/memory.current", 0) - value_behind(memory.bytes, "active_file") -
                                  value_behind(memory.bytes, "inactive_file")};
    if (script_too)
        add_ended_script(&used, processes.bytes);
    char *rest = processes.bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        add_io_of(&used, (pid_t)atoi(line));
    free(memory.bytes);
    free(processes.bytes);
    return used;
}

/* In a VM that a former release configured, another program writes the file, in place: it may be empty for an instant. */
static struct used most_seen(void)
{
    struct used most = {0};
    for (int look = 0; look < LOOKS; look++) {
        if (sscanf(text_of_file(VJOB_USAGE "/most").bytes, "%lld %lld %lld", &most.memory, &most.read, &most.written) == 3)
            break;
        usleep(LOOK_US);
    }
    return most;
}

static struct used most_of(struct used one, struct used other)
{
    return (struct used){larger(one.memory, other.memory), larger(one.read, other.read), larger(one.written, other.written)};
}

static useconds_t pause_us(int looks)
{
    return looks < 5 ? 500000 : looks < 100 ? (useconds_t)looks * 100000 : 10000000;
}

static void watch(void)
{
    struct used most = {0};
    char line[LINE_BYTES];
    /* A job that takes all memory should be ended, and not this watcher. */
    be_kept("-1000");
    for (int looks = 1;; looks++) {
        most = most_of(most, look(false));
        snprintf(line, sizeof line, "%lld %lld %lld\n", most.memory, most.read, most.written);
        keep(VJOB_USAGE, "most", line);
        usleep(pause_us(looks));
    }
}

static void print(void)
{
    static const char *const times[] = {"usage_usec", "user_usec", "system_usec"};
    if (!exists(VJOB_GROUP "/memory.current"))
        return;
    struct used most = most_of(most_seen(), look(true));
    struct text cpu = text_of_file(VJOB_GROUP "/cpu.stat");
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        printf("%s=%lld\n", times[i], value_behind(cpu.bytes, times[i]));
    printf("memory_bytes=%lld\npeak_bytes=%lld\n", most.memory, (long long)read_number(VJOB_GROUP "/memory.peak", 0));
    printf("read_bytes=%lld\nwritten_bytes=%lld\n", most.read, most.written);
    printf("available_kib=%lld\n", (long long)read_number(VJOB_USAGE "/available", 0));
}

int account_main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "watch") == 0)
        watch();
    else if (argc == 2 && strcmp(argv[1], "print") == 0)
        print();
    else {
        fprintf(stderr, "usage: %s watch|print\n", argv[0]);
        return 2;
    }
    return EXIT_SUCCESS;
}
