/* container: the first process of a guest that is a container. Its mounts, its host name and its network are its node's work, and
 * so is all that would need a privilege on a kernel that it shares. It takes its own keys from its configuration, a file that
 * the node has bound there, and becomes busybox's init, which runs the ssh server. */

#include "image.h"

#include "base/files.h"
#include "base/texts.h"
#include "programs.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG IMAGE_TOOLS "/config"

int container_main(int argc, char **argv)
{
    static char *const init[] = {"init", NULL};
    unsigned char key[KEY_BYTES];
    const char *config = text_of_file(CONFIG).bytes;
    if (argc != 1) {
        fprintf(stderr, "usage: %s\n", argv[0]);
        return 2;
    }
    umask(022);
    mkdir("/root/.ssh", 0700);
    mkdir("/etc/dropbear", 0700);
    authorise(value_of(config, "root_authorized_key"));
    write_name(value_of(config, "hostname"), value_of(config, "address"));
    keep_accounts();
    /* A guest that nobody can come into is no guest: its node sees at once that it has ended. */
    if (keep_host_key(value_of(config, "dropbear_host_key"), key) < 0)
        fail(1, "%s has no host key", CONFIG);
    execv("/sbin/init", init);
    fail(127, "there is no /sbin/init");
}
