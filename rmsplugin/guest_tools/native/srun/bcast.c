/* srun --bcast: the program is copied to the same place in all VMs of the vjob, and run from there. */

#include "client.h"

#include "base/memory.h"
#include "base/names.h"
#include "messages.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The path of a command: in PATH, then in this directory, as Slurm looks for it; NULL: not found. */
static char *path_of(const char *command)
{
    const char *rest = getenv("PATH");
    if (strchr(command, '/') != NULL)
        return copied(command);
    while (rest != NULL) {
        int length = (int)strcspn(rest, ":");
        char *path = formatted("%.*s%s%s", length, rest, length > 0 ? "/" : "", command);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
        rest = rest[length] == ':' ? rest + length + 1 : NULL;
    }
    return access(command, X_OK) == 0 ? copied(command) : NULL;
}

/* As in Slurm: a file of that name, or one named after the step in that directory, or in this one. */
static char *place_for(const struct client *client, const char *wanted)
{
    struct stat status;
    char *here = getcwd(NULL, 0);
    const char *start = here != NULL ? here : "";
    if (wanted == NULL)
        return formatted("%s/slurm_bcast_%s", start, client->id);
    char *path = *wanted == '/' ? copied(wanted) : formatted("%s/%s", start, wanted);
    bool ends = path[strlen(path) - 1] == '/';
    if (ends || (stat(path, &status) == 0 && S_ISDIR(status.st_mode)))
        return formatted("%s%sslurm_bcast_%s", path, ends ? "" : "/", client->id);
    return path;
}

static bool succeeds(char *const words[])
{
    pid_t child;
    int status;
    sigset_t none;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    return posix_spawn(&child, words[0], NULL, &attributes, words, environ) == 0 &&
           waitpid(child, &status, 0) == child && status == 0;
}

static void bcast(const struct client *client, struct options *options)
{
    char **command = options->command;
    char *program = path_of(command[0]), *place = place_for(client, options->bcast_to);
    if (program == NULL)
        return; /* the step says that the command does not exist */
    char *words[] = {VJOB_BIN "/sbcast", "--force", program, place, NULL};
    if (!succeeds(words))
        error_exit(1, "Unable to copy %s to %s in all VMs", program, place);
    free(program);
    command[0] = place;
}

void client_bcast(struct client *client)
{
    for (uint32_t i = 0; i < client->component_count; i++)
        if (client->components[i].options.bcast)
            bcast(client, &client->components[i].options);
}
