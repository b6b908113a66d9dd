#define _GNU_SOURCE

#include "values.h"

#include "messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void bad_value(const char *value, const char *option)
{
    error_exit(1, "Invalid numeric value \"%s\" for %s.", value, option);
}

uint32_t value_number(const char *value, const char *option, uint32_t least)
{
    char *end;
    unsigned long got = strtoul(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end != 0 || got < least || got > 1000000)
        bad_value(value, option);
    return (uint32_t)got;
}

/* -N 2 or 1-2: the greater one, as far as there are tasks. */
uint32_t value_nodes(const char *value)
{
    const char *dash = strchr(value, '-');
    if (dash == NULL)
        return value_number(value, "--nodes", 1);
    char *first = strndup(value, (size_t)(dash - value));
    uint32_t least = first != NULL ? value_number(first, "--nodes", 1) : 1;
    free(first);
    uint32_t most = value_number(dash + 1, "--nodes", 1);
    if (most < least)
        bad_value(value, "--nodes");
    return most;
}

/* Slurm's forms of a time, in seconds: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. */
uint32_t value_time(const char *value)
{
    unsigned days = 0, parts[3] = {0, 0, 0};
    int used = 0, end = 0;
    const char *rest = value;
    bool with_days = sscanf(value, "%u-%n", &days, &end) == 1 && end > 0;
    if (with_days)
        rest += end;
    end = 0;
    used = sscanf(rest, "%u%n:%u%n:%u%n", &parts[0], &end, &parts[1], &end, &parts[2], &end);
    if (strcasecmp(value, "INFINITE") == 0 || strcasecmp(value, "UNLIMITED") == 0)
        return 0;
    if (used < 1 || rest[end] != 0 || days > 10000 || parts[0] > 1000000 || parts[1] > 1000000 || parts[2] > 1000000)
        error_exit(BAD_OPTION, "Invalid --time specification");
    if (with_days)
        return days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
    if (used == 3)
        return parts[0] * 3600 + parts[1] * 60 + parts[2];
    return parts[0] * 60 + parts[1];
}

/* A size in MiB. */
uint64_t value_size(const char *value, const char *option)
{
    char *end;
    unsigned long long size = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || (*end != 0 && end[1] != 0 && strcasecmp(end + 1, "B") != 0) || size >> 40)
        error_exit(1, "Invalid %s specification", option);
    switch (toupper((unsigned char)*end)) {
    case 'K': return (size + 1023) / 1024;
    case 0:
    case 'M': return size;
    case 'G': return size << 10;
    case 'T': return size << 20;
    default: error_exit(1, "Invalid %s specification", option);
    }
}

void value_memory(const struct vjob *vjob, uint64_t wanted_mib)
{
    if (wanted_mib > vjob->memory_mib)
        error_exit(1, "Unable to create step for job %u: Memory required by task is not available", vjob->job_id);
}

void value_mpi(const char *type)
{
    if (strcmp(type, "list") == 0) {
        puts("MPI plugin types are...\n\tnone");
        exit(0);
    }
    if (strcmp(type, "none") == 0)
        return;
    error_exit(1,
               "--mpi=%s is not possible inside a vjob: there is no process manager of this type. What works: "
               "mpirun --hostfile $RMSPLUGIN_HOSTFILE (Open MPI), mpirun -f $RMSPLUGIN_HOSTFILE (MPICH)",
               type);
}


bool value_asks_for_none(const char *value)
{
    char *list = copied(value), *rest = list;
    bool none = true;
    if (strcasecmp(value, "none") != 0)
        for (char *word; (word = strsep(&rest, ",")) != NULL;) {
            const char *colon = strrchr(word, ':');
            none = none && strcmp(colon != NULL ? colon + 1 : word, "0") == 0;
        }
    free(list);
    return none;
}
