/* rmsplugin-guest put: standard input is a tar archive of the files that run-script reads; the last one, `complete`, says
 * that all of them came. */

#include "guest.h"

#include "files.h"
#include "texts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool run(char *const words[])
{
    pid_t child;
    int status;
    return posix_spawnp(&child, words[0], NULL, NULL, words, environ) == 0 && waitpid(child, &status, 0) == child &&
           status == 0;
}

/* What is sent has to be read, or its sender would see a broken connection. */
static void pass_over_input(void)
{
    char ignored[4096];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
}

/* Whether the script lies now where it lies on the front, too: only where configure has made that very path. What is written
 * is the same each time, so that the last one may have begun it, or the script be running. */
static bool put_in_place(const char *from)
{
    char file[PATH_BYTES], made[4096] = "";
    char *rest = text_of_file(path_to(file, from, "path", "")).bytes;
    const char *path = next_line(&rest);
    struct text script = text_of_file(path_to(file, from, "slurm_script", ""));
    if (path == NULL || readlink(SCRIPT, made, sizeof made - 1) < 0 || strcmp(path, made) != 0)
        return false;
    if (access(made, X_OK) == 0)
        return true;
    int fd = open(made, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && write_all(fd, script.bytes, script.length) && fchmod(fd, 0700) == 0 && close(fd) == 0;
}

static bool move_all(const char *from)
{
    DIR *directory = opendir(from);
    struct dirent *entry;
    char old[PATH_BYTES], new[PATH_BYTES];
    bool moved = directory != NULL;
    while (moved && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            moved = rename(path_to(old, from, entry->d_name, ""), path_to(new, JOB, entry->d_name, "")) == 0;
    if (directory != NULL)
        closedir(directory);
    return moved;
}

int put(void)
{
    char place[PATH_BYTES], name[32], complete[PATH_BYTES], path[PATH_BYTES];
    if (exists(JOB "/started")) {
        pass_over_input();
        return EXIT_SUCCESS;
    }
    snprintf(name, sizeof name, ".put.%d", (int)getpid());
    if (mkdir(path_to(place, JOB, name, ""), 0700) != 0)
        fail(1, "cannot write %s", JOB);
    bool came = run((char *[]){"tar", "-x", "-f", "-", "-C", place, NULL}) &&
                unlink(path_to(complete, place, "complete", "")) == 0 &&
                (put_in_place(place) || unlink(path_to(path, place, "path", "")) == 0 || errno == ENOENT) && move_all(place);
    run((char *[]){"rm", "-rf", place, NULL});
    if (!came) {
        pass_over_input();
        fail(1, "the files came incomplete");
    }
    return EXIT_SUCCESS;
}
