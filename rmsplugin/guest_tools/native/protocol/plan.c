#include "plan.h"

#include <string.h>

static void put_command(struct buffer *buffer, const struct command *command)
{
    put_number(buffer, command->count);
    for (uint32_t i = 0; i < command->count; i++)
        put_text(buffer, command->words[i]);
}

static bool get_command(struct reader *reader, struct command *command)
{
    command->count = get_number(reader);
    if (reader->bad || command->count > (size_t)(reader->end - reader->at)) /* each word has a byte, at least */
        return false;
    command->words = allocate((size_t)command->count + 1, sizeof *command->words);
    for (uint32_t i = 0; i < command->count; i++)
        command->words[i] = (char *)get_text(reader);
    return !reader->bad;
}

void plan_put(struct buffer *buffer, const struct plan *plan)
{
    const uint32_t numbers[] = {plan->job_id, plan->step,       plan->ntasks, plan->node,  plan->nodes,
                                plan->mask,   plan->unbuffered, plan->append, plan->first_node, plan->cpus,
                                plan->local};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(buffer, numbers[i]);
    for (uint32_t i = 0; i < plan->local; i++) {
        put_number(buffer, plan->tasks[i]);
        put_number(buffer, plan->command_of[i]);
    }
    for (int i = 0; i < 3; i++) {
        put_number(buffer, plan->streams[i].kind);
        put_number(buffer, plan->streams[i].task);
        put_text(buffer, plan->streams[i].pattern != NULL ? plan->streams[i].pattern : "");
    }
    for (int i = 0; i < LIMITS; i++) {
        put_number(buffer, plan->limits[i][0]);
        put_number(buffer, plan->limits[i][1]);
    }
    put_text(buffer, plan->name);
    put_text(buffer, plan->user);
    put_text(buffer, plan->directory);
    put_number(buffer, plan->command_count);
    for (uint32_t i = 0; i < plan->command_count; i++)
        put_command(buffer, &plan->commands[i]);
    put_command(buffer, &plan->environment);
    put_text(buffer, plan->task_prolog);
    put_text(buffer, plan->task_epilog);
}

static bool get_tasks(struct reader *reader, struct plan *plan)
{
    plan->local = get_number(reader);
    if (reader->bad || plan->local == 0 || plan->local > numbers_left(reader) / 2)
        return false;
    plan->tasks = allocate(plan->local, sizeof *plan->tasks);
    plan->command_of = allocate(plan->local, sizeof *plan->command_of);
    for (uint32_t i = 0; i < plan->local; i++) {
        plan->tasks[i] = get_number(reader);
        plan->command_of[i] = get_number(reader);
    }
    return true;
}

bool plan_get(struct reader *reader, struct plan *plan)
{
    memset(plan, 0, sizeof *plan);
    uint32_t *numbers[] = {&plan->job_id, &plan->step,       &plan->ntasks, &plan->node, &plan->nodes,
                           &plan->mask,   &plan->unbuffered, &plan->append, &plan->first_node,
                           &plan->cpus};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = get_number(reader);
    if (!get_tasks(reader, plan))
        return false;
    for (int i = 0; i < 3; i++) {
        plan->streams[i].kind = get_number(reader);
        plan->streams[i].task = get_number(reader);
        plan->streams[i].pattern = (char *)get_text(reader);
    }
    for (int i = 0; i < LIMITS; i++) {
        plan->limits[i][0] = get_number(reader);
        plan->limits[i][1] = get_number(reader);
    }
    plan->name = (char *)get_text(reader);
    plan->user = (char *)get_text(reader);
    plan->directory = (char *)get_text(reader);
    plan->command_count = get_number(reader);
    if (reader->bad || plan->command_count > numbers_left(reader) || plan->first_node > plan->node)
        return false;
    plan->commands = allocate(plan->command_count, sizeof *plan->commands);
    for (uint32_t i = 0; i < plan->command_count; i++)
        if (!get_command(reader, &plan->commands[i]) || plan->commands[i].count == 0)
            return false;
    for (uint32_t i = 0; i < plan->local; i++)
        if (plan->command_of[i] >= plan->command_count)
            return false;
    if (!get_command(reader, &plan->environment))
        return false;
    plan->task_prolog = (char *)get_text(reader);
    plan->task_epilog = (char *)get_text(reader);
    return !reader->bad;
}
