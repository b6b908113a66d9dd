/* vjob-tools: the programs for guests for which a shell is too slow, or not enough. One static file; the name by which it is
 * called tells which program it is. */

#include "base/unpack.h"
#include "commands/programs.h"
#include "front/programs.h"
#include "image/programs.h"
#include "script/programs.h"
#include "srun/programs.h"
#include "stepd/programs.h"
#include "vm/programs.h"

#include <libgen.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} programs[] = {
    {"account", account_main}, {"commands", commands_main}, {"configure", configure_main},
    {"container", container_main}, {"identity", identity_main}, {"init", init_main}, {"login-shell", login_shell_main}, {"relay", relay_main},
    {"rmsplugin-guest", guest_main}, {"sentry", sentry_main}, {"shadow", shadow_main}, {"srun", srun_main},
    {"stepd", stepd_main}, {"unpack", unpack_main}, {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *name = argc > 0 ? basename(argv[0]) : "";
    if (*name == '-') /* of a login shell */
        name++;
    /* On a front, which has no links: the name is the first word. */
    if (strcmp(name, "vjob-tools") == 0 && argc > 1)
        name = *++argv, argc--;
    for (size_t i = 0; programs[i].name != NULL; i++)
        if (strcmp(name, programs[i].name) == 0)
            return programs[i].run(argc, argv);
    fprintf(stderr, "vjob-tools: no program of the name %s\n", name);
    return 2;
}
