#include "job_environment.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/texts.h"
#include "base/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the connection comes from an address outside the vjob's VMs. */
static bool from_outside(void)
{
    static const char mapped[] = "::ffff:"; /* the form in a server that listens by IPv6 */
    const char *connection = getenv("SSH_CONNECTION");
    if (connection == NULL || *connection == '\0')
        return false;
    if (strncmp(connection, mapped, sizeof mapped - 1) == 0)
        connection += sizeof mapped - 1;
    return !has_field(text_of_file(VJOB_ETC "/hosts").bytes, ' ', 1, field_of(connection, ' ', 1));
}

/* The script's environment at its start, in the VM where it runs; false in others. */
static bool set_as_of_script(void)
{
    char **words = words_of(VJOB_JOB "/env", allocate(1, sizeof *words));
    bool is_any = false;
    for (; *words != NULL; words++)
        if (strncmp(*words, "SLURM", 5) == 0 && strchr(*words, '=') != NULL) {
            putenv(*words);
            is_any = true;
        }
    return is_any;
}

static void set_number(const char *name, uint32_t number)
{
    putenv(formatted("%s=%u", name, number));
}

/* The facts that this VM has itself: the script runs in another VM, or has not begun. */
static void set_as_known(const struct vjob *vjob)
{
    uint32_t *vms = allocate(vjob->count, sizeof *vms);
    for (uint32_t vm = 0; vm < vjob->count; vm++)
        vms[vm] = vm;
    const char *names = host_list(vjob, vms, vjob->count);
    set_number("SLURM_JOB_ID", vjob->job_id);
    set_number("SLURM_JOBID", vjob->job_id);
    set_number("SLURM_JOB_NUM_NODES", (uint32_t)vjob->count);
    set_number("SLURM_NNODES", (uint32_t)vjob->count);
    set_number("SLURM_CPUS_ON_NODE", vjob->cpus);
    set_number("SLURM_MEM_PER_NODE", vjob->memory_mib);
    setenv("SLURM_JOB_NODELIST", names, 1);
    setenv("SLURM_NODELIST", names, 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", counts_list(vjob->all_cpus, vjob->count), 1);
}

void set_job_environment(const char *vjob)
{
    if (*value_of(vjob, "job_id") == '\0' || !exists(VJOB_ETC "/hostfile") || !from_outside())
        return;
    struct vjob known = vjob_read();
    if (!set_as_of_script())
        set_as_known(&known);
    setenv("SLURM_JOB_USER", value_of(vjob, "user"), 1);
    setenv("SLURM_JOB_UID", value_of(vjob, "uid"), 1);
    setenv("SLURM_JOB_GID", value_of(vjob, "gid"), 1);
    setenv("SLURMD_NODENAME", known.names[known.index], 1);
    set_number("SLURM_NODEID", known.index);
}
