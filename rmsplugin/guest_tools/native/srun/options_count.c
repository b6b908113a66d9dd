/* From srun's options about VMs and tasks to the request of one component. */

#define _GNU_SOURCE

#include "options.h"

#include "messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_LIMIT = 4 << 20 };

static int parse_vms(const struct vjob *vjob, const char *text, uint32_t **vms)
{
    int count = parse_host_list(vjob, text, vms);
    if (count < 0)
        error_exit(1, "Unable to create step for job %u: Requested node configuration is not available",
                   vjob->job_id);
    return count;
}

/* The names in a file, with a `*COUNT` behind some; a # begins a comment. */
static char *names_in(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        error_message("slurm_allocate_resources error opening file %s, %m", path);
        error_exit(1, "Failure getting NodeNames from hostfile");
    }
    struct buffer names = {0};
    bool comment = false;
    for (int c; (c = getc(file)) != EOF && buffer_size(&names) < NAMES_LIMIT;) {
        comment = c != '\n' && (comment || c == '#');
        char letter = comment || isspace(c) ? ',' : (char)c;
        buffer_append(&names, &letter, 1);
    }
    buffer_append(&names, "", 1);
    fclose(file);
    return names.data;
}

/* Without repetitions, in the order of the first occurrences. */
static uint32_t distinct(const struct vjob *vjob, const uint32_t *vms, uint32_t count, uint32_t *to)
{
    bool *seen = allocate(vjob->count, sizeof *seen);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!seen[vms[i]])
            to[kept++] = vms[i];
        seen[vms[i]] = true;
    }
    free(seen);
    return kept;
}

/* A list gives the VM of each task. */
static void take_places(struct options *options, struct lists *lists, const uint32_t *vms, uint32_t count)
{
    struct request *request = &options->request;
    bool of_file = lists->file != NULL;
    if (!lists->ntasks_given)
        request->ntasks = count;
    if (of_file && request->ntasks < count)
        count = request->ntasks; /* the first lines of a hostfile */
    if (request->ntasks == 0)
        error_exit(1, "invalid number of tasks (-n 0)");
    if (request->ntasks != count && of_file) {
        error_message("Too few NodeNames in Slurm Hostfile");
        error_exit(1, "Failure getting NodeNames from hostfile");
    }
    if (request->ntasks != count)
        error_exit(1, "You asked for %u tasks but hostlist specified %u nodes", request->ntasks, count);
    request->place_count = count;
    request->places = allocate(count, sizeof *request->places);
    memcpy(request->places, vms, count * sizeof *vms);
}

static const char *wanted_names(struct options *options, struct lists *lists)
{
    const char *file = getenv("SLURM_HOSTFILE");
    if (lists->file == NULL && lists->wanted == NULL && file != NULL && *file != 0) {
        lists->file = file;
        options->distribution.given = true;
        options->distribution.type = ARBITRARY;
        options->distribution.levels = copied("arbitrary");
    } else if (lists->wanted != NULL && strchr(lists->wanted, '/') != NULL) {
        lists->file = lists->wanted; /* Slurm takes a list with a slash in it for a file's name */
    }
    return lists->file != NULL ? names_in(lists->file) : lists->wanted;
}

static void choose_vms(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    struct request *request = &options->request;
    bool *out = allocate(vjob->count, sizeof *out);
    uint32_t *listed = NULL;
    request->vms = allocate(vjob->count, sizeof *request->vms);
    if (lists->excluded != NULL) {
        int count = parse_vms(vjob, lists->excluded, &listed);
        for (int i = 0; i < count; i++)
            out[listed[i]] = true;
        free(listed);
        listed = NULL;
    }
    const char *wanted = wanted_names(options, lists);
    uint32_t count = wanted != NULL ? (uint32_t)parse_vms(vjob, wanted, &listed) : 0;
    if (options->distribution.type == ARBITRARY)
        take_places(options, lists, listed, count);
    request->must = request->vm_count = distinct(vjob, listed, count, request->vms);
    for (uint32_t i = 0; i < request->vm_count; i++)
        out[request->vms[i]] = true;
    for (uint32_t vm = lists->relative; vm < vjob->count; vm++)
        if (!out[vm])
            request->vms[request->vm_count++] = vm;
    free(out);
    free(listed);
}

/* The number of VMs that so many tasks need. */
static uint32_t nodes_for(const struct request *request, const struct vjob *vjob)
{
    uint32_t all = (uint32_t)vjob->count, nodes = 0;
    for (uint64_t places = 0; nodes < all && places < request->ntasks; nodes++) {
        uint32_t here = vjob->all_cpus[nodes] / request->cpus_per_task;
        places += request->per_node > 0 && here > request->per_node ? request->per_node : here;
    }
    return nodes;
}

static void count_nodes(const struct lists *lists, struct request *request, const struct vjob *vjob)
{
    uint32_t all = (uint32_t)vjob->count;
    if (request->nodes == 0 && lists->one_of_several)
        request->nodes = request->must > 0 ? request->must : nodes_for(request, vjob);
    else if (request->nodes == 0)
        request->nodes = request->per_node > 0 ? (request->ntasks + request->per_node - 1) / request->per_node : all;
    else
        return;
    if (request->nodes > request->ntasks)
        request->nodes = request->ntasks;
}

/* The numbers of tasks and VMs, from the given options: as Slurm's srun, with SLURM_NTASKS and SLURM_NNODES taken as if they
 * were given, too. */
static void count_tasks(struct options *options, const struct lists *lists, const struct vjob *vjob)
{
    struct request *request = &options->request;
    uint32_t all = (uint32_t)vjob->count;
    bool any_nodes = request->nodes == 0;
    if (request->ntasks == 0 && request->per_node > 0)
        request->ntasks = (any_nodes ? all : request->nodes) * request->per_node;
    else if (request->ntasks == 0)
        request->ntasks = lists->nodes_given ? request->nodes : vjob->ntasks;
    if (request->ntasks == 0 || request->ntasks > MAXIMUM_TASKS)
        error_exit(1, "Unable to create step for job %u: More processors requested than permitted", vjob->job_id);
    count_nodes(lists, request, vjob);
    if (request->nodes > request->ntasks) {
        if (!options->quiet)
            message("Warning: can't run %u processes on %u nodes, setting nnodes to %u", request->ntasks,
                    request->nodes, request->ntasks);
        request->nodes = request->ntasks;
    }
    if (request->nodes > all)
        error_exit(1, "Only allocated %u nodes asked for %u", all, request->nodes);
    if (request->per_node > 0 && request->per_node != request->ntasks / request->nodes) {
        if (!options->quiet && request->ntasks > request->per_node)
            message("Warning: can't honor --ntasks-per-node set to %u which doesn't match the requested tasks %u with "
                    "the number of requested nodes %u. Ignoring --ntasks-per-node.",
                    request->per_node, request->ntasks, request->nodes);
        request->per_node = 0;
    }
    if (request->must > request->nodes)
        request->must = request->nodes;
}

void options_count(struct options *options, struct lists *lists, const struct vjob *vjob)
{
    struct request *request = &options->request;
    const struct distribution_asked *distribution = &options->distribution;
    if (lists->relative_given && (lists->wanted != NULL || lists->excluded != NULL))
        error_exit(1, "-r,--relative not allowed with -w,--nodelist or -x,--exclude.");
    choose_vms(options, lists, vjob);
    if (options->multi_prog) {
        uint32_t least = request->ntasks > 0 ? request->ntasks : 1;
        request->ntasks = programs_count(&options->programs, least, request->ntasks > 0);
    }
    request->distribution = distribution->type;
    request->plane = distribution->plane;
    request->pack = distribution->pack;
    if (distribution->type == ARBITRARY)
        request->nodes = request->must; /* each of the list */
    count_tasks(options, lists, vjob);
}
