/* Requests for a step as they go from srun to the hub. */

#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_list(struct buffer *buffer, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        put_number(buffer, numbers[i]);
}

static void request_put(struct buffer *buffer, const struct request *request)
{
    const uint32_t values[] = {
        request->ntasks,  request->cpus_per_task, request->nodes,     request->per_node, request->distribution,
        request->overlap, request->overcommit,    request->immediate, request->must,     request->vm_count,
    };
    put_list(buffer, values, sizeof values / sizeof *values);
    put_list(buffer, request->vms, request->vm_count);
    put_text(buffer, request->name);
    const uint32_t more[] = {request->pack, request->plane, request->limit_s, request->place_count};
    put_list(buffer, more, sizeof more / sizeof *more);
    put_list(buffer, request->places, request->place_count);
}

void requests_put(struct buffer *buffer, const struct requests *requests)
{
    for (uint32_t i = 0; i < requests->count; i++)
        request_put(buffer, &requests->each[i]);
}

static bool is_repeated(const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (numbers[i] == numbers[j])
                return true;
    return false;
}

/* A list of VMs, each of which the vjob has. */
static bool get_vms(struct reader *reader, uint32_t vms, uint32_t count, uint32_t **list)
{
    if (reader->bad || count > numbers_left(reader))
        return false;
    *list = allocate(count, sizeof **list);
    for (uint32_t i = 0; i < count; i++) {
        (*list)[i] = get_number(reader);
        if ((*list)[i] >= vms)
            return false;
    }
    return !reader->bad;
}

static bool request_get(struct reader *reader, uint32_t vms, struct request *request)
{
    uint32_t *values[] = {
        &request->ntasks,  &request->cpus_per_task, &request->nodes,     &request->per_node, &request->distribution,
        &request->overlap, &request->overcommit,    &request->immediate, &request->must,     &request->vm_count,
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        *values[i] = get_number(reader);
    if (reader->bad || request->vm_count > vms || request->ntasks == 0 || request->ntasks > MAXIMUM_TASKS ||
        request->cpus_per_task == 0 || request->must > request->vm_count || request->distribution > ARBITRARY)
        return false;
    if (!get_vms(reader, vms, request->vm_count, &request->vms) || is_repeated(request->vms, request->vm_count))
        return false;
    snprintf(request->name, sizeof request->name, "%s", get_text(reader));
    request->pack = get_number(reader);
    request->plane = get_number(reader);
    request->limit_s = get_number(reader);
    request->place_count = get_number(reader);
    if (!get_vms(reader, vms, request->place_count, &request->places))
        return false;
    return (request->distribution != PLANE || request->plane > 0) &&
           (request->distribution != ARBITRARY || request->place_count == request->ntasks);
}

bool requests_get(struct reader *reader, uint32_t vms, struct requests *requests)
{
    bool good = true;
    memset(requests, 0, sizeof *requests);
    while (good && reader->at < reader->end) {
        good = requests->count < MAXIMUM_COMPONENTS;
        if (!good)
            break;
        requests->each = resized(requests->each, requests->count + 1, sizeof *requests->each);
        memset(&requests->each[requests->count], 0, sizeof *requests->each);
        good = request_get(reader, vms, &requests->each[requests->count++]);
    }
    if (good && requests->count > 0 && requests_tasks(requests) <= MAXIMUM_TASKS)
        return true;
    requests_free(requests);
    return false;
}

uint32_t requests_tasks(const struct requests *requests)
{
    uint32_t tasks = 0;
    for (uint32_t i = 0; i < requests->count; i++)
        tasks += requests->each[i].ntasks;
    return tasks;
}

void requests_free(struct requests *requests)
{
    for (uint32_t i = 0; i < requests->count; i++) {
        free(requests->each[i].vms);
        free(requests->each[i].places);
    }
    free(requests->each);
    memset(requests, 0, sizeof *requests);
}
