#include "layout.h"

#include <stdlib.h>
#include <string.h>

/* ---- which VMs ---- */

/* The VMs that a component's tasks can use: its VMs so far, and the CPUs of each. */
struct choice {
    uint32_t count, *vms;
    uint32_t *room; /* tasks that have CPUs there; with --overcommit any number has */
    uint32_t *cpus; /* tasks that have a CPU of their own there */
};

static uint32_t tasks_for(const struct request *request, uint32_t cpus)
{
    uint32_t most = cpus / request->cpus_per_task;
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

static void add_vm(const struct request *request, struct choice *choice, uint32_t vm, uint32_t free_cpus)
{
    uint32_t own = tasks_for(request, free_cpus);
    choice->vms[choice->count] = vm;
    choice->cpus[choice->count] = own > 0 ? own : 1;
    choice->room[choice->count++] = own;
}

/* Take VMs in their order: the required ones, and others until there is room for all tasks; none with room for less
 * than `least`. */
static bool take(const struct request *request, const uint32_t *cpus, const uint32_t *used, struct choice *choice,
                 uint32_t least)
{
    uint64_t places = 0;
    uint32_t wanted = request->nodes < request->ntasks ? request->nodes : request->ntasks;
    choice->count = 0;
    for (uint32_t i = 0; i < request->vm_count; i++) {
        bool enough = wanted > 0 ? choice->count == wanted : places >= request->ntasks;
        if (enough && i >= request->must)
            break;
        uint32_t vm = request->vms[i], free_cpus = used[vm] < cpus[vm] ? cpus[vm] - used[vm] : 0;
        uint32_t here = request->overcommit && used[vm] != UINT32_MAX ? request->ntasks : tasks_for(request, free_cpus);
        if (here < least || choice->count == request->ntasks) {
            if (i < request->must)
                return false;
            continue;
        }
        add_vm(request, choice, vm, free_cpus);
        places += here;
    }
    return places >= request->ntasks && choice->count >= wanted;
}

/* A list gives the VM of each task: --distribution=arbitrary. */
static bool take_listed(const struct request *request, const uint32_t *cpus, const uint32_t *used, uint32_t vms,
                        struct choice *choice)
{
    choice->count = 0;
    for (uint32_t vm = 0; vm < vms; vm++) {
        uint32_t here = 0, free_cpus = used[vm] < cpus[vm] ? cpus[vm] - used[vm] : 0;
        for (uint32_t task = 0; task < request->place_count; task++)
            here += request->places[task] == vm;
        if (here == 0)
            continue;
        if (request->overcommit ? used[vm] == UINT32_MAX : here > free_cpus / request->cpus_per_task)
            return false;
        add_vm(request, choice, vm, free_cpus);
    }
    return choice->count > 0;
}

static bool choose(const struct request *request, const uint32_t *cpus, const uint32_t *used, uint32_t vms,
                   struct choice *choice)
{
    if (request->distribution == ARBITRARY)
        return take_listed(request, cpus, used, vms, choice);
    if (take(request, cpus, used, choice, 1))
        return true;
    /* The first ones may be nearly full, and later ones have room. */
    uint32_t nodes = request->nodes;
    return nodes > 0 && take(request, cpus, used, choice, (request->ntasks + nodes - 1) / nodes);
}

static void swap(uint32_t *numbers, uint32_t i, uint32_t j)
{
    uint32_t number = numbers[i];
    numbers[i] = numbers[j];
    numbers[j] = number;
}

/* Nodes of a component are numbered in the order of the job's nodes, whatever -w says. */
static void sort(struct choice *choice)
{
    for (uint32_t i = 1; i < choice->count; i++)
        for (uint32_t j = i; j > 0 && choice->vms[j] < choice->vms[j - 1]; j--) {
            swap(choice->vms, j, j - 1);
            swap(choice->room, j, j - 1);
            swap(choice->cpus, j, j - 1);
        }
}

/* ---- which tasks ---- */

/* As many tasks as possible go to a VM at a time: 1, or a plane. A VM whose CPUs are all used gets more only when
 * all VMs' CPUs are. */
static void count_in_turns(const struct request *request, const struct choice *choice, uint32_t *counts, uint32_t turn)
{
    uint32_t left = request->ntasks;
    for (uint32_t i = 0; i < choice->count && left > 0; i++, left--)
        counts[i] = 1;
    bool full = false;
    for (uint32_t done = 1; left > 0; done = 0) { /* the first one of the first turn has been given */
        bool given = false;
        for (uint32_t i = 0; i < choice->count; i++)
            for (uint32_t k = done; k < turn && left > 0 && (full || counts[i] < choice->cpus[i]); k++) {
                counts[i]++;
                left--;
                given = true;
            }
        full = full || (done == 0 && !given);
    }
}

/* Slurm's `pack`: one task for each VM, then the first VM is filled, then the next; tasks beyond the CPUs go in
 * turns. */
static void count_packed(const struct request *request, const struct choice *choice, uint32_t *counts)
{
    uint32_t left = request->ntasks;
    for (uint32_t i = 0; i < choice->count && left > 0; i++, left--)
        counts[i] = 1;
    for (uint32_t i = 0; i < choice->count; i++)
        for (; left > 0 && counts[i] < choice->cpus[i]; left--)
            counts[i]++;
    while (left > 0)
        for (uint32_t i = 0; i < choice->count && left > 0; i++, left--)
            counts[i]++;
}

static void count_listed(const struct request *request, const struct choice *choice, uint32_t *counts)
{
    for (uint32_t i = 0; i < choice->count; i++)
        for (uint32_t task = 0; task < request->place_count; task++)
            counts[i] += request->places[task] == choice->vms[i];
}

/* Give each node so many tasks at a time, in turns. */
static void number_in_turns(struct layout *layout, uint32_t node, uint32_t task, uint32_t last, uint32_t turn)
{
    uint32_t *given = allocate(layout->vm_count, sizeof *given);
    while (task < last)
        for (uint32_t i = node; i < layout->vm_count; i++)
            for (uint32_t k = 0; k < turn && given[i] < layout->counts[i]; k++) {
                given[i]++;
                layout->node_of[task++] = i;
            }
    free(given);
}

static void number_listed(const struct request *request, struct layout *layout, uint32_t node, uint32_t task)
{
    for (uint32_t i = 0; i < request->place_count; i++)
        for (uint32_t at = node; at < layout->vm_count; at++)
            if (layout->vms[at] == request->places[i])
                layout->node_of[task + i] = at;
}

static void add_component(const struct request *request, uint32_t component, const struct choice *choice,
                          struct layout *layout, uint32_t task)
{
    uint32_t node = layout->vm_count, *counts = &layout->counts[node], last = task + request->ntasks;
    for (uint32_t i = 0; i < choice->count; i++, layout->vm_count++) {
        layout->vms[layout->vm_count] = choice->vms[i];
        layout->component[layout->vm_count] = component;
    }
    if (request->distribution == ARBITRARY)
        count_listed(request, choice, counts);
    else if (request->distribution == BLOCK && request->pack)
        count_packed(request, choice, counts);
    else
        count_in_turns(request, choice, counts, request->distribution == PLANE ? request->plane : 1);
    switch (request->distribution) {
    case ARBITRARY: number_listed(request, layout, node, task); break;
    case PLANE: number_in_turns(layout, node, task, last, request->plane); break;
    case CYCLIC: number_in_turns(layout, node, task, last, 1); break;
    default: number_in_turns(layout, node, task, last, request->ntasks);
    }
}

static void layout_room(struct layout *layout, uint32_t ntasks, uint32_t vm_count)
{
    memset(layout, 0, sizeof *layout);
    layout->ntasks = ntasks;
    layout->vms = allocate(vm_count, sizeof *layout->vms);
    layout->counts = allocate(vm_count, sizeof *layout->counts);
    layout->component = allocate(vm_count, sizeof *layout->component);
    layout->node_of = allocate(ntasks, sizeof *layout->node_of);
}

/* Lay all components out; busy[vm] are the CPUs that are taken, UINT32_MAX: the VM is another component's. */
static bool make(const struct requests *requests, uint32_t vms, const uint32_t *cpus, uint32_t *busy, struct choice *choice,
                 struct layout *layout)
{
    uint32_t task = 0;
    layout_room(layout, requests_tasks(requests), vms);
    for (uint32_t i = 0; i < requests->count; i++) {
        const struct request *request = &requests->each[i];
        if (!choose(request, cpus, busy, vms, choice)) {
            layout_free(layout);
            return false;
        }
        sort(choice);
        add_component(request, i, choice, layout, task);
        for (uint32_t at = 0; at < choice->count; at++)
            busy[choice->vms[at]] = UINT32_MAX;
        task += request->ntasks;
    }
    return true;
}

static bool counts_used(const struct requests *requests)
{
    for (uint32_t i = 0; i < requests->count; i++)
        if (!requests->each[i].overlap && !requests->each[i].overcommit)
            return true;
    return false;
}

enum fit layout_make(const struct requests *requests, uint32_t vms, const uint32_t *cpus, const uint32_t *used,
                     struct layout *layout)
{
    uint32_t *busy = allocate(vms, sizeof *busy), *room = allocate(3 * (size_t)vms, sizeof *room);
    struct choice choice = {.vms = room, .room = room + vms, .cpus = room + 2 * (size_t)vms};
    if (counts_used(requests))
        memcpy(busy, used, vms * sizeof *busy);
    enum fit result = FITS;
    if (!make(requests, vms, cpus, busy, &choice, layout)) {
        memset(busy, 0, vms * sizeof *busy);
        result = make(requests, vms, cpus, busy, &choice, layout) ? BUSY : NEVER;
        if (result == BUSY)
            layout_free(layout);
    }
    free(busy);
    free(room);
    return result;
}

/* ---- on the wire ---- */

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
    for (uint32_t i = 0; i < layout->vm_count; i++)
        put_number(buffer, layout->component[i]);
}

bool layout_get(struct reader *reader, uint32_t vms, struct layout *layout)
{
    memset(layout, 0, sizeof *layout);
    uint32_t ntasks = get_number(reader), vm_count = get_number(reader);
    if (reader->bad || ntasks > MAXIMUM_TASKS || vm_count > vms ||
        (uint64_t)ntasks + 3 * (uint64_t)vm_count > numbers_left(reader))
        return false;
    layout_room(layout, ntasks, vm_count);
    layout->vm_count = vm_count;
    for (uint32_t i = 0; i < vm_count; i++) {
        layout->vms[i] = get_number(reader);
        layout->counts[i] = get_number(reader);
        reader->bad = reader->bad || layout->vms[i] >= vms || layout->counts[i] > ntasks;
    }
    for (uint32_t i = 0; i < ntasks; i++) {
        layout->node_of[i] = get_number(reader);
        reader->bad = reader->bad || layout->node_of[i] >= vm_count;
    }
    for (uint32_t i = 0; i < vm_count; i++)
        layout->component[i] = get_number(reader);
    return !reader->bad;
}

void layout_free(struct layout *layout)
{
    free(layout->vms);
    free(layout->counts);
    free(layout->component);
    free(layout->node_of);
    memset(layout, 0, sizeof *layout);
}
