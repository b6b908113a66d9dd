/* rmsplugin-guest acks: what of the streams was acknowledged, and what is kept. */

#include "guest.h"

#include "base/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const streams[] = {"stdout", "stderr"};

bool is_stream(const char *name)
{
    return strcmp(name, streams[0]) == 0 || strcmp(name, streams[1]) == 0;
}

/* Whether the script was started, the acknowledgements, and the offsets from which the streams are kept. */
int acks(void)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    if (exists(VJOB_STATE "/started"))
        puts("started");
    for (size_t i = 0; i < 2; i++)
        if (read_line(path_to(path, VJOB_STATE, "ack.", streams[i]), line))
            puts(line);
    for (size_t i = 0; i < 2; i++)
        printf("kept %s %lld\n", streams[i], (long long)read_number(path_to(path, VJOB_OUTPUT, streams[i], ".kept"), 0));
    return EXIT_SUCCESS;
}
