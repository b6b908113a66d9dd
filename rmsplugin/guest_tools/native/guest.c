/* rmsplugin-guest: control program of the user's script in this VM, run by the wrapper over ssh as the user.
 *
 * The connection may break at any instant, and the VM may be saved and restored at any instant: every command either has
 * happened or has not, and all but `start` may be given again. */

#include "guest.h"

#include "files.h"
#include "programs.h"
#include "script.h"
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const streams[] = {"stdout", "stderr"};

bool is_stream(const char *name)
{
    return strcmp(name, streams[0]) == 0 || strcmp(name, streams[1]) == 0;
}

int wait_for_script(void)
{
    char line[LINE_BYTES];
    struct watch watch;
    if (!exists(JOB "/started"))
        fail(1, "the script was not started");
    watch_open(&watch, NULL);
    while (!script_ended())
        watch_wait(&watch, -1);
    if (read_line(JOB "/signal", line))
        printf("signal %s\n", line);
    else if (read_line(JOB "/exit", line))
        printf("exit %s\n", line);
    return EXIT_SUCCESS;
}

/* Whether the script was started, what was acknowledged, and from where on the streams are kept. */
int acks(void)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    if (exists(JOB "/started"))
        puts("started");
    for (size_t i = 0; i < 2; i++)
        if (read_line(path_to(path, JOB, "ack.", streams[i]), line))
            puts(line);
    for (size_t i = 0; i < 2; i++)
        printf("kept %s %lld\n", streams[i], (long long)read_number(path_to(path, OUTPUT, streams[i], ".kept"), 0));
    return EXIT_SUCCESS;
}

static off_t number_of(const char *text, const char *what)
{
    off_t number;
    if (!parse_number(text, &number))
        fail(2, "%s needs a number", what);
    return number;
}

int guest_main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "", *first = argc > 2 ? argv[2] : "";
    umask(077);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    if (strcmp(command, "room") == 0)
        return room(number_of(first, "room"));
    if (strcmp(command, "put") == 0)
        return put();
    if (strcmp(command, "start") == 0)
        return start();
    if (strcmp(command, "follow") == 0) {
        if (!is_stream(first))
            fail(2, "no such stream: %s", first);
        return follow(first, argc > 3 ? number_of(argv[3], "follow") : 0);
    }
    if (strcmp(command, "wait") == 0)
        return wait_for_script();
    if (strcmp(command, "control") == 0)
        return control();
    if (strcmp(command, "acks") == 0)
        return acks();
    fail(2, "usage: rmsplugin-guest room|put|start|follow|wait|control|acks ...");
}
