#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void request_put(struct buffer *buffer, const struct request *request)
{
    const uint32_t values[] = {
        request->ntasks,  request->cpus_per_task, request->nodes,     request->per_node, request->distribution,
        request->overlap, request->overcommit,    request->immediate, request->must,     request->vm_count,
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        put_number(buffer, values[i]);
    for (uint32_t i = 0; i < request->vm_count; i++)
        put_number(buffer, request->vms[i]);
    put_text(buffer, request->name);
}

bool request_get(struct reader *reader, struct request *request)
{
    uint32_t *values[] = {
        &request->ntasks,  &request->cpus_per_task, &request->nodes,     &request->per_node, &request->distribution,
        &request->overlap, &request->overcommit,    &request->immediate, &request->must,     &request->vm_count,
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        *values[i] = get_number(reader);
    if (reader->bad || request->vm_count > UINT16_MAX || request->ntasks == 0 || request->ntasks > MAXIMUM_TASKS ||
        request->cpus_per_task == 0 || request->must > request->vm_count)
        return false;
    request->vms = allocate(request->vm_count, sizeof *request->vms);
    for (uint32_t i = 0; i < request->vm_count; i++)
        request->vms[i] = get_number(reader);
    if (reader->bad)
        return false;
    /* An srun of an older release says no name. */
    snprintf(request->name, sizeof request->name, "%s", get_text(reader));
    return true;
}

void request_free(struct request *request)
{
    free(request->vms);
    memset(request, 0, sizeof *request);
}

/* How many of the step's tasks a VM with so many free CPUs takes. */
static uint32_t tasks_for(const struct request *request, uint32_t cpus)
{
    uint32_t most = request->overcommit ? request->ntasks : cpus / request->cpus_per_task;
    if (request->per_node > 0 && most > request->per_node)
        most = request->per_node;
    return most;
}

uint32_t layout_cpus(const struct request *request, uint32_t tasks, uint32_t cpus)
{
    if (request->overlap)
        return 0;
    uint64_t wanted = (uint64_t)tasks * request->cpus_per_task;
    return wanted < cpus ? (uint32_t)wanted : cpus;
}

/* Take VMs in their order, those that have to be, and others until there is room for all tasks; none with room for less
 * than `least`. */
static bool take(const struct request *request, uint32_t cpus, const uint32_t *used, struct layout *layout,
                 uint32_t *room, uint32_t least)
{
    uint64_t places = 0;
    layout->vm_count = 0;
    uint32_t wanted = request->nodes;
    if (wanted > request->ntasks)
        wanted = request->ntasks;
    for (uint32_t i = 0; i < request->vm_count; i++) {
        bool enough = wanted > 0 ? layout->vm_count == wanted : places >= request->ntasks;
        if (enough && i >= request->must)
            break;
        uint32_t vm = request->vms[i];
        uint32_t here = tasks_for(request, used[vm] < cpus ? cpus - used[vm] : 0);
        if (here < least || layout->vm_count == request->ntasks) {
            if (i < request->must)
                return false;
            continue;
        }
        layout->vms[layout->vm_count] = vm;
        room[layout->vm_count++] = here;
        places += here;
    }
    return places >= request->ntasks && layout->vm_count >= wanted;
}

static bool choose(const struct request *request, uint32_t cpus, const uint32_t *used, struct layout *layout,
                   uint32_t *room)
{
    if (take(request, cpus, used, layout, room, 1))
        return true;
    /* The first ones may be nearly full, and later ones have room. */
    uint32_t nodes = request->nodes;
    return nodes > 0 && take(request, cpus, used, layout, room, (request->ntasks + nodes - 1) / nodes);
}

/* Nodes of a step are numbered in the order of the job's, whatever -w says. */
static void sort(struct layout *layout, uint32_t *room)
{
    for (uint32_t i = 1; i < layout->vm_count; i++)
        for (uint32_t j = i; j > 0 && layout->vms[j] < layout->vms[j - 1]; j--) {
            uint32_t vm = layout->vms[j], here = room[j];
            layout->vms[j] = layout->vms[j - 1];
            room[j] = room[j - 1];
            layout->vms[j - 1] = vm;
            room[j - 1] = here;
        }
}

/* Slurm's block distribution: one task for each VM, then the first one is filled, then the next. */
static void count_block(struct layout *layout, const uint32_t *room, bool evenly)
{
    uint32_t left = layout->ntasks;
    for (uint32_t i = 0; i < layout->vm_count; i++, left--)
        layout->counts[i] = 1;
    while (left > 0)
        for (uint32_t i = 0; i < layout->vm_count && left > 0; i++) {
            uint32_t more = room[i] - layout->counts[i];
            if (evenly && more > 1)
                more = 1;
            if (more > left)
                more = left;
            layout->counts[i] += more;
            left -= more;
        }
}

static void number_tasks(struct layout *layout, bool cyclic)
{
    uint32_t task = 0;
    uint32_t *given = allocate(layout->vm_count, sizeof *given);
    while (task < layout->ntasks)
        for (uint32_t i = 0; i < layout->vm_count; i++)
            while (given[i] < layout->counts[i]) {
                given[i]++;
                layout->node_of[task++] = i;
                if (cyclic)
                    break;
            }
    free(given);
}

static void layout_room(struct layout *layout, uint32_t ntasks, uint32_t vm_count)
{
    layout->ntasks = ntasks;
    layout->vms = allocate(vm_count, sizeof *layout->vms);
    layout->counts = allocate(vm_count, sizeof *layout->counts);
    layout->node_of = allocate(ntasks, sizeof *layout->node_of);
}

enum fit layout_make(const struct request *request, uint32_t cpus, const uint32_t *used, struct layout *layout)
{
    uint32_t *nothing = allocate(UINT16_MAX + 1, sizeof *nothing);
    uint32_t *room = allocate(request->vm_count, sizeof *room);
    memset(layout, 0, sizeof *layout);
    layout_room(layout, request->ntasks, request->vm_count);
    enum fit result = FITS;
    if (!choose(request, cpus, request->overlap || request->overcommit ? nothing : used, layout, room)) {
        result = choose(request, cpus, nothing, layout, room) ? BUSY : NEVER;
        layout_free(layout);
    } else {
        sort(layout, room);
        count_block(layout, room, request->overcommit || request->distribution == CYCLIC);
        number_tasks(layout, request->distribution == CYCLIC);
    }
    free(nothing);
    free(room);
    return result;
}

void layout_put(struct buffer *buffer, const struct layout *layout)
{
    put_number(buffer, layout->ntasks);
    put_number(buffer, layout->vm_count);
    for (uint32_t i = 0; i < layout->vm_count; i++) {
        put_number(buffer, layout->vms[i]);
        put_number(buffer, layout->counts[i]);
    }
    for (uint32_t i = 0; i < layout->ntasks; i++)
        put_number(buffer, layout->node_of[i]);
}

bool layout_get(struct reader *reader, struct layout *layout)
{
    memset(layout, 0, sizeof *layout);
    uint32_t ntasks = get_number(reader), vm_count = get_number(reader);
    if (reader->bad || ntasks > MAXIMUM_TASKS || vm_count > UINT16_MAX)
        return false;
    layout_room(layout, ntasks, vm_count);
    layout->vm_count = vm_count;
    for (uint32_t i = 0; i < vm_count; i++) {
        layout->vms[i] = get_number(reader);
        layout->counts[i] = get_number(reader);
    }
    for (uint32_t i = 0; i < ntasks; i++) {
        layout->node_of[i] = get_number(reader);
        reader->bad = reader->bad || layout->node_of[i] >= vm_count;
    }
    return !reader->bad;
}

void layout_free(struct layout *layout)
{
    free(layout->vms);
    free(layout->counts);
    free(layout->node_of);
    memset(layout, 0, sizeof *layout);
}
