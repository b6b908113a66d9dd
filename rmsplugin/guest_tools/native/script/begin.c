/* rmsplugin-guest begin [run NUMBER] STREAM SIZE...: the beginning of a wrapper's work on its job, in one process, since an emulated guest
 * takes its time for each process. It does `acks`, then, unless the script was started, `put`, `start` and `wait 0`. The files
 * come after `ready` was said; standard input goes on after them, as long as the connection does. */

#include "guest.h"

#include "base/files.h"
#include "base/run.h"
#include "base/unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The size of the job's output file before the first byte of the stream. */
static void keep_first(const char *stream, const char *size)
{
    char name[PATH_BYTES], path[PATH_BYTES], line[LINE_BYTES];
    off_t bytes;
    if (!is_stream(stream) || size == NULL || !parse_number(size, &bytes))
        fail(2, "begin needs streams and the sizes of their files");
    snprintf(name, sizeof name, "ack.%s", stream);
    snprintf(line, sizeof line, "%s 0 %lld\n", stream, (long long)bytes);
    bool counts = !exists(VJOB_STATE "/started") || !exists(path_to(path, VJOB_STATE, name, ""));
    if (counts && !keep(VJOB_STATE, name, line))
        fail(1, "cannot write %s", VJOB_STATE);
}

int begin(char **words)
{
    if (*words != NULL && strcmp(*words, "run") == 0) {
        enter_run(words[1] == NULL ? "" : words[1]);
        await_former_wrappers();
        words += words[1] == NULL ? 1 : 2;
    }
    for (; *words != NULL; words += 2)
        keep_first(words[0], words[1]);
    acks();
    puts("ready");
    fflush(stdout);
    if (exists(VJOB_STATE "/started"))
        return EXIT_SUCCESS;
    if (!take_files()) {
        puts(NOT_KEPT);
        fflush(stdout);
        read_to_end(STDIN_FILENO); /* unread data would look like a broken connection */
        return EXIT_FAILURE;
    }
    start();
    fflush(stdout);
    return wait_for_script(0);
}
