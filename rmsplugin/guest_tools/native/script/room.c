/* rmsplugin-guest room BYTES: whether the script's standard input may lie here. Where it would lie in memory, it may take at
 * most half of the free memory. Says how many MiB it may take. */

#include "guest.h"

#include "base/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

enum { NO_ROOM = 3 };
#define BTRFS 0x9123683eUL

static long long available_kib(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[LINE_BYTES];
    long long kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "MemAvailable: %lld", &kib) != 1) {
    }
    if (file != NULL)
        fclose(file);
    return kib;
}

int room(off_t bytes)
{
    struct stat place;
    struct statfs system;
    if (stat(VJOB_JOB "/.", &place) != 0 || statfs(VJOB_JOB "/.", &system) != 0)
        fail(1, "cannot see %s", VJOB_JOB);
    long long free_kib = (long long)system.f_bavail * (long long)system.f_bsize / 1024;
    /* Files on no disk have no device of their own; btrfs is the exception. */
    bool on_disk = major(place.st_dev) != 0 || (unsigned long)system.f_type == BTRFS;
    if (!on_disk && available_kib() / 2 < free_kib)
        free_kib = available_kib() / 2;
    printf("%lld\n", free_kib / 1024);
    return free_kib > bytes / 1024 ? EXIT_SUCCESS : NO_ROOM;
}
