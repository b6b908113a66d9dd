/* The user's account, as files for the image's C library and ssh server. */

#include "configure.h"

#include "base/files.h"
#include "base/texts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The image's own file, which is kept before the first change. */
static struct text of_image(const char *path)
{
    char kept[PATH_BYTES];
    path_to(kept, VJOB_IMAGE, strrchr(path, '/') + 1, "");
    if (!exists(kept)) {
        make_directories(VJOB_IMAGE);
        copy_file(path, kept);
    }
    return text_of_file(kept);
}

/* The lines whose names are not in `known`. */
static void add_besides(struct text *text, struct text lines, const char *known)
{
    char *rest = lines.bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (!has_field(known, ':', 1, field_of(line, ':', 1)))
            text_add(text, "%s\n", line);
}

/* The lines of all but the user. */
static void add_others(struct text *text, struct text lines, const char *user)
{
    char *rest = lines.bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (strcmp(field_of(line, ':', 1), user) != 0)
            text_add(text, "%s\n", line);
}

static bool is_local(const char *source)
{
    static const char *const local[] = {"files", "compat", "db", "systemd", NULL};
    return is_one_of(source, local);
}

static void blank_reactions(char *line)
{
    for (char *open; (open = strchr(line, '[')) != NULL;) {
        char *close = strchr(open, ']');
        size_t length = close != NULL ? (size_t)(close - open) + 1 : strlen(open);
        memset(open, ' ', length);
    }
}

/* Whether the image has users from elsewhere (LDAP, SSSD, ...), which knows users better. */
static bool asks_directory(void)
{
    char *rest = text_of_file("/etc/nsswitch.conf").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;) {
        blank_reactions(line);
        if (strcmp(field_of(line, ' ', 1), "passwd:") != 0)
            continue;
        const char *source;
        for (int number = 2; *(source = field_of(line, ' ', number)) != '\0'; number++)
            if (!is_local(source))
                return true;
    }
    return false;
}

/* The other members of the user's groups have only names here: no home, so no keys, and no shell. */
static void add_people(struct text *text, const char *image)
{
    char *rest = text_of_file(VJOB_ETC "/people").bytes;
    if (asks_directory())
        return;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (!has_field(image, ':', 1, field_of(line, ':', 1)) && !has_field(image, ':', 3, field_of(line, ':', 3)))
            text_add(text, "%s\n", line);
}

/* Our lines come first: an image's own account with the same number must not give the user its name. */
void make_account(const struct facts *facts)
{
    struct text groups = text_of_file(VJOB_ETC "/group"), people = {NULL, 0};
    const char *ours = strdup(groups.bytes), *password = "*";
    add_besides(&groups, of_image("/etc/group"), ours);
    replace_file("/etc/group", &groups);
    if (exists("/etc/shadow")) {
        struct text secrets = {NULL, 0};
        password = "x";
        text_add(&secrets, "%s:*:19000:0:99999:7:::\n", facts->user);
        add_others(&secrets, text_of_file("/etc/shadow"), facts->user);
        replace_file("/etc/shadow", &secrets);
    }
    text_add(&people, "%s:%s:%u:%u:%s:%s/%s:%s\n", facts->user, password, facts->uid, facts->gid, facts->gecos, VJOB_LOGIN,
             facts->user, LOGIN_SHELL);
    add_others(&people, of_image("/etc/passwd"), facts->user);
    add_people(&people, of_image("/etc/passwd").bytes);
    replace_file("/etc/passwd", &people);
    /* Without this file an ssh server takes only /bin/sh for a shell. */
    struct text shells = text_of_file("/etc/shells");
    if (!exists("/etc/shells"))
        text_add(&shells, "/bin/sh\n");
    if (!has_field(shells.bytes, '\n', 1, LOGIN_SHELL))
        text_add(&shells, "%s\n", LOGIN_SHELL);
    replace_file("/etc/shells", &shells);
}

/* Dropbear's client reads only keys in its own form. The file is renamed into place, so that it is never another user's. */
static void keep_dropbear_key(const char *directory, const struct facts *facts)
{
    char half[4096], whole[4096];
    snprintf(half, sizeof half, "%s/.id_dropbear", directory);
    snprintf(whole, sizeof whole, "%s/id_dropbear", directory);
    mode_t usual = umask(077);
    unlink(half);
    copy_file(VJOB_ETC "/id_dropbear", half);
    umask(usual);
    give_to(half, facts);
    if (rename(half, whole) != 0)
        fail(1, "cannot write %s: %s", whole, strerror(errno));
}

void authorise_key(const struct facts *facts)
{
    char directory[2048], path[4096];
    snprintf(directory, sizeof directory, "%s/%s/.ssh", VJOB_LOGIN, facts->user);
    make_directories(directory);
    snprintf(path, sizeof path, "%s/authorized_keys", directory);
    copy_file(VJOB_ETC "/id_ed25519.pub", path);
    snprintf(path, sizeof path, "%s/known_hosts", directory);
    copy_file(VJOB_ETC "/known_hosts", path);
    give_to(VJOB_ETC "/id_ed25519", facts);
    chmod(VJOB_ETC "/id_ed25519", 0600);
    if (has_program("dbclient"))
        keep_dropbear_key(directory, facts);
}

/* OpenSSH's client: ours for the VMs of the vjob, the user's and the image's own settings for all other hosts. */
void write_ssh_config(const struct facts *facts)
{
    struct text config = {NULL, 0};
    char *rest = text_of_file(VJOB_ETC "/hosts").bytes;
    text_add(&config, "Host ");
    for (char *line; (line = next_line(&rest)) != NULL;)
        text_add(&config, "%s %s ", field_of(line, ' ', 1), field_of(line, ' ', 2));
    text_add(&config,
             "\n    IdentityFile %s/id_ed25519\n    IdentitiesOnly yes\n    UserKnownHostsFile %s/known_hosts\n"
             "    GlobalKnownHostsFile /dev/null\n    StrictHostKeyChecking yes\n    BatchMode yes\n    LogLevel ERROR\n"
             "Host *\n    Include %s/.ssh/config\n    Include /etc/ssh/ssh_config\n",
             VJOB_ETC, VJOB_ETC, facts->home);
    replace_file(VJOB_ETC "/ssh_config", &config);
}
