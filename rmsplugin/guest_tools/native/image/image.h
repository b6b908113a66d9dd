/* The small guest image: what its two programs, and the parts of one, share. */

#ifndef IMAGE_H
#define IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CARD "eth0"

/* The ssh server's host key. Until the guest has one, a pipe is in its place: the server has started, and waits at it. */
#define HOST_KEY "/etc/dropbear/dropbear_ed25519_host_key"

/* The bytes that a base64 text stands for; -1 if it is none, or if they are more than fit. */
ssize_t decode_base64(const char *text, void *bytes, size_t fit);

/* Give the card the addresses of the configuration, and bring it up. A guest whose card keeps the MAC address of the template
 * is powered off. */
void set_network(const char *config);
void await_card(void);

/* Only root may read them: who may come in as root, and the host key. The second returns the bytes of the key; -1 if the text is
 * none, or if it cannot be kept. */
enum { KEY_BYTES = 1024 };
void authorise(const char *key);
ssize_t keep_host_key(const char *encoded, unsigned char key[KEY_BYTES]);

/* /etc/hostname and /etc/hosts; what the kernel has for a name stays. */
void write_name(const char *name, const char *address);

/* In the image root has a shell that starts at once: the engine's first command is to unpack its archive (login_shell.c), and a
 * start waits for that. `configure`, which comes with it, writes the accounts anew, by those that it finds here. */
void keep_accounts(void);

/* Fill free memory with zeros. */
void clear_free_memory(void);

/* FILE gets the text; a new file has that mode. False if it cannot be written. */
bool write_file(const char *path, const char *text, mode_t mode);

void bring_up(const char *device); /* false is no answer: a card that is not up is seen by whoever waits for the guest */

#endif
