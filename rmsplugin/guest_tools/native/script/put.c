/* rmsplugin-guest put: standard input is a tar archive of the files by which a process becomes the script (run_script.c). The
 * last one, `complete`, says that all of them came. */

#include "guest.h"

#include "base/files.h"
#include "base/texts.h"
#include "base/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the script now also lies at its path on the front: only if configure has made that very path. The content is the
 * same each time, so the wrapper before may have begun to write it, or the script may be running. */
static bool put_in_place(const char *from)
{
    char file[PATH_BYTES], made[4096] = "";
    char *rest = text_of_file(path_to(file, from, "path", "")).bytes;
    const char *path = next_line(&rest);
    struct text script = text_of_file(path_to(file, from, "slurm_script", ""));
    if (path == NULL || readlink(VJOB_SCRIPT, made, sizeof made - 1) < 0 || strcmp(path, made) != 0)
        return false;
    if (access(made, X_OK) == 0)
        return true;
    int fd = open(made, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && write_all(fd, script.bytes, script.length) && fchmod(fd, 0700) == 0 && close(fd) == 0;
}

static bool move(const char *from, const char *name)
{
    char old[PATH_BYTES], new[PATH_BYTES];
    return rename(path_to(old, from, name, ""), path_to(new, VJOB_JOB, name, "")) == 0;
}

static bool discard(const char *from, const char *name)
{
    char path[PATH_BYTES];
    return unlink(path_to(path, from, name, "")) == 0;
}

/* Do that with all files in the directory, until one fails. */
static bool each(const char *place, bool (*act)(const char *place, const char *name))
{
    DIR *directory = opendir(place);
    struct dirent *entry;
    bool done = directory != NULL;
    while (done && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            done = act(place, entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return done;
}

bool take_files(void)
{
    char place[PATH_BYTES], name[32];
    snprintf(name, sizeof name, ".put.%d", (int)getpid());
    if (mkdir(path_to(place, VJOB_JOB, name, ""), 0700) != 0)
        return false;
    bool came = unpack(STDIN_FILENO, place) && discard(place, "complete");
    /* Another wrapper may have started the script while they came. */
    if (came && !exists(VJOB_STATE "/started"))
        came = (put_in_place(place) || discard(place, "path") || errno == ENOENT) && each(place, move);
    each(place, discard);
    rmdir(place);
    return came;
}

int put(void)
{
    bool kept = exists(VJOB_STATE "/started") || take_files();
    /* Unread data would look like a broken connection. */
    read_to_end(STDIN_FILENO);
    if (!kept)
        fail(1, NOT_KEPT);
    return EXIT_SUCCESS;
}
