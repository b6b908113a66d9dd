/* login-shell: login shell of the vjob's user in this VM.
 *
 * Dropbear looks for authorised keys only in the home that /etc/passwd names. The user's real home, a
 * network file system that root may not read, must not be written to. So /etc/passwd names a home of ours, and this
 * shell, which changes to the real home and becomes the real shell. */

#include "base/files.h"
#include "base/memory.h"
#include "base/processes.h"
#include "base/texts.h"
#include "job_environment.h"
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAXIMUM_WORDS = 16 };

static bool begins(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The engine's commands for root's shell in a guest that was not configured yet, where this is that shell: to unpack by the tools
 * that are there, or by those of the image if they are of the engine's release. They are obeyed without a shell. */
static void become_unpack(const char *command)
{
    static const char words[] = "[ ! -x " VJOB_BIN "/unpack ] || exec " VJOB_BIN "/unpack; ";
    static const char of_image[] = "[ -x " IMAGE_TOOLS "/", name[] = "/unpack";
    if (begins(command, words))
        execl(VJOB_BIN "/unpack", VJOB_BIN "/unpack", (char *)NULL);
    if (!begins(command, of_image))
        return;
    const char *program = field_of(command, ' ', 3);
    size_t length = strlen(program);
    if (length > sizeof name && strcmp(program + length - (sizeof name - 1), name) == 0)
        execl(program, program, (char *)NULL);
}

static const char *set_environment(void)
{
    const char *vjob = text_of_file(VJOB_ETC "/vjob").bytes;
    const char *home = value_of(vjob, "home"), *shell = value_of(vjob, "shell");
    const char *locale = getenv("LANG");
    if (access(shell, X_OK) != 0)
        shell = "/bin/sh";
    setenv("HOME", home, 1);
    setenv("SHELL", shell, 1);
    setenv("PATH", VJOB_BIN ":/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", 1);
    if (locale == NULL || *locale == '\0') {
        locale = value_of(vjob, "locale");
        if (*locale == '\0')
            unsetenv("LANG");
        else
            setenv("LANG", locale, 1);
    }
    if (chdir(home) != 0 && chdir("/") != 0)
        fail(1, "there is no directory /");
    return shell;
}

/* Become one of our own tools, without a shell in between if the words are plain: a start consists of several, and an
 * emulated guest takes its time for each program. Start files of the user's must not run in between: our own
 * programs read the output. */
static void become_tool(char *command)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:-";
    char *words[MAXIMUM_WORDS + 1] = {NULL}, *rest = copied(command), *word;
    size_t count = 0;
    bool is_plain = true;
    while (is_plain && (word = strsep(&rest, " ")) != NULL) {
        is_plain = count < MAXIMUM_WORDS && *word != '\0' && word[strspn(word, plain)] == '\0';
        if (is_plain)
            words[count++] = word;
    }
    if (is_plain)
        execv(words[0], words);
    execl("/bin/sh", "/bin/sh", "-c", command, (char *)NULL);
    fail(127, "there is no /bin/sh");
}

int login_shell_main(int argc, char **argv)
{
    char *command = argc > 2 && strcmp(argv[1], "-c") == 0 ? argv[2] : NULL;
    if (command != NULL)
        become_unpack(command);
    const char *shell = set_environment();
    if (command == NULL || !begins(command, VJOB_BIN "/"))
        set_job_environment(text_of_file(VJOB_ETC "/vjob").bytes);
    if (command == NULL || !begins(command, VJOB_BIN "/") || begins(command, VJOB_BIN "/stepd "))
        enter_job();
    if (command != NULL && begins(command, VJOB_BIN "/"))
        become_tool(command);
    argv[0] = (char *)shell;
    if (argc == 1)
        execl(shell, shell, "-l", (char *)NULL);
    else
        execv(shell, argv);
    fail(127, "%s cannot be started", shell);
}
