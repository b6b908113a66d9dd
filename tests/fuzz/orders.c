/* Lines of the wrapper, and of those who ask inside the guest, for `commands serve`. */

#include "../../rmsplugin/guest_tools/native/commands/serve.c"

#include "targets.h"

void parse_orders(const char *data, size_t size)
{
    static char *none[] = {NULL};
    struct input *lines = allocate(1, sizeof *lines);
    known = none;
    for (size_t i = 0; i < size; i++)
        add(lines, data[i]);
    free(lines);
}
