/* commands: the wrapper's side of slurm-client, run over ssh as the user in the first VM (docs/protocols.md,
 * section 3). */

#include "desk.h"
#include "programs.h"

#include <string.h>
#include <sys/stat.h>

int commands_main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "", *id = argc > 2 ? argv[2] : "";
    off_t number = 0;
    umask(077);
    if (strcmp(verb, "serve") == 0)
        return serve(argv + 2);
    if (strcmp(verb, "answer") != 0)
        fail(2, "usage: commands serve ID... | answer ID [NUMBER]");
    if (!is_request_id(id))
        fail(2, "no such request: %s", id);
    if (argc > 3 && (!parse_number(argv[3], &number) || number < 1))
        fail(2, "no such part of an answer: %s", argv[3]);
    return answer(id, number);
}
