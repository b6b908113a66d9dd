/* rmsplugin-guest: control program of the user's script in this VM, run by the wrapper over ssh as the user.
 *
 * The connection may break at any instant, and the VM may be saved and restored at any instant. So every command either has
 * happened or has not, and all but `start` may be given again. */

#include "guest.h"

#include "base/files.h"
#include "base/run.h"
#include "programs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static off_t number_of(const char *text, const char *what)
{
    off_t number;
    if (!parse_number(text, &number))
        fail(2, "%s needs a number", what);
    return number;
}

/* The number of the wrapper's run, which one of a former release does not tell. */
static void enter_run_of(const char *number)
{
    if (number != NULL)
        enter_run(number);
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
    if (strcmp(command, "begin") == 0)
        return begin(argv + 2);
    if (strcmp(command, "follow") == 0) {
        if (!is_stream(first))
            fail(2, "no such stream: %s", first);
        enter_run_of(argc > 4 ? argv[4] : NULL);
        return follow(first, argc > 3 ? number_of(argv[3], "follow") : 0);
    }
    if (strcmp(command, "wait") == 0) {
        enter_run_of(argc > 3 ? argv[3] : NULL);
        return wait_for_script(*first == '\0' ? -1 : number_of(first, "wait"));
    }
    if (strcmp(command, "control") == 0) {
        enter_run_of(argc > 2 ? first : NULL);
        return control();
    }
    if (strcmp(command, "acks") == 0)
        return acks();
    fail(2, "usage: rmsplugin-guest room|begin|put|start|follow|wait|control|acks ...");
}
