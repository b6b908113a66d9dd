#define _GNU_SOURCE

#include "base/names.h"
#include "hub_connect.h"
#include "wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 1000, TRY_MS = 10, READ_MS = 5000 };

static int try_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred owner;
    socklen_t size = sizeof owner;
    strncpy(address.sun_path, HUB_SOCKET, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0 && owner.uid == getuid())
        return fd;
    close(fd);
    return -1;
}

/* The hub has a session of its own, and nothing of the caller's: it has to outlive the caller, and holds none of its pipes. */
static void become_hub(void)
{
    static char *const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", NULL};
    setsid();
    if (fork() != 0)
        _exit(0);
    int null = open("/dev/null", O_RDWR);
    int log = open(HUB_LOG, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(null, 0);
    dup2(null, 1);
    dup2(log >= 0 ? log : null, 2);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    if (chdir("/") != 0)
        _exit(1);
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execle(VJOB_BIN "/stepd", "stepd", "hub", (char *)NULL, environment);
    _exit(1);
}

static void start_hub(void)
{
    pid_t process = fork();
    if (process == 0)
        become_hub();
    if (process > 0)
        waitpid(process, NULL, 0);
}

int hub_connect(void)
{
    const struct timespec pause = {0, TRY_MS * 1000000L};
    for (int i = 0; i < TRIES; i++) {
        int fd = try_connect();
        if (fd >= 0)
            return fd;
        /* Again after a while: a hub that was just ending may have kept the new one from starting. */
        if (i % 100 == 0)
            start_hub();
        nanosleep(&pause, NULL);
    }
    return -1;
}

int hub_end_steps(void)
{
    struct connection connection;
    int hub = try_connect();
    if (hub < 0)
        return -1;
    connection_open(&connection, hub, hub);
    send_data(&connection, END_STEPS, 0, 0, 0, NULL, 0);
    connection_flush(&connection);
    return hub;
}

void hub_signal_step(uint32_t step, int number)
{
    struct connection connection;
    int hub = try_connect();
    if (hub < 0)
        return;
    connection_open(&connection, hub, hub);
    send_data(&connection, SIGNAL_STEP, 0, step, (uint32_t)number, NULL, 0);
    connection_flush(&connection);
    shutdown(hub, SHUT_WR);
    /* The end of the connection says that the frame was read. */
    struct pollfd polled = {hub, POLLIN, 0};
    poll(&polled, 1, READ_MS);
    connection_close(&connection);
}
