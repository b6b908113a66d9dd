/* Each start from the template reads all of its memory that is not zero, be it in use or not. What the boot has used and given
 * back is handed out again first, and is not much. The kernel's reserve cannot be cleared, and the kernel caches as much again
 * for this CPU; without a little that is left to it, it stands still. */

#include "image.h"

#include "base/files.h"
#include "base/processes.h"
#include "base/texts.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESERVE "/proc/sys/vm/min_free_kbytes"

enum { LEFT_KIB = 16 << 10, MOST_KIB = 1 << 20 };

static off_t free_kib(void)
{
    off_t kib = 0;
    char *rest = text_of_file("/proc/meminfo").bytes;
    for (char *line; (line = next_line(&rest)) != NULL;)
        if (is_one_of(field_of(line, ' ', 1), (const char *const[]){"MemFree:", NULL}))
            parse_number(field_of(line, ' ', 2), &kib);
    return kib;
}

/* In a process that may die of it: the kernel ends one that asks for more than there is. Small pages: huge ones are made only of
 * memory unused since the boot began. */
static void fill(off_t kib)
{
    pid_t child = fork();
    if (child == 0) {
        be_kept("1000");
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        mmap(NULL, (size_t)kib << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        _exit(EXIT_SUCCESS);
    }
    waitpid(child, NULL, 0);
}

void clear_free_memory(void)
{
    struct text reserve = text_of_file(RESERVE);
    write_file(RESERVE, "2048\n", 0644);
    off_t kib = free_kib() - LEFT_KIB;
    if (kib > 0)
        fill(kib < MOST_KIB ? kib : MOST_KIB);
    write_file(RESERVE, reserve.bytes, 0644);
}
