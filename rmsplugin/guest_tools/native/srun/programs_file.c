#define _GNU_SOURCE

#include "programs_file.h"

#include "protocol/layout.h"
#include "messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\n";

/* ---- lines ---- */

static _Noreturn void invalid(const struct programs *programs, const struct program *program)
{
    error_exit(1, "Line %u of configuration file %s invalid", program->number, programs->path);
}

static bool is_continued(const char *line)
{
    size_t size = strcspn(line, "\n");
    return size > 0 && line[size - 1] == '\\';
}

static void add_program(struct programs *programs, unsigned number, char *line)
{
    struct program program = {.number = number};
    char *at = line;
    while (isspace((unsigned char)*at))
        at++;
    if (*at == 0 || *at == '#')
        return;
    program.tasks = strtok_r(at, blanks, &program.words);
    if (program.tasks == NULL || program.words == NULL || program.words[strspn(program.words, blanks)] == 0)
        invalid(programs, &program);
    program.tasks = copied(program.tasks);
    program.words = copied(program.words);
    programs->each = resized(programs->each, programs->count + 1, sizeof *programs->each);
    programs->each[programs->count++] = program;
}

static void continue_program(struct program *program, const char *line)
{
    char *words = formatted("%s%s", program->words, line);
    free(program->words);
    program->words = words;
}

struct programs programs_read(const char *path)
{
    struct programs programs = {.path = path};
    FILE *file = fopen(path, "re");
    if (file == NULL)
        error_exit(1, "Could not open multi_prog config file %s", path);
    char *line = NULL;
    size_t size = 0, before = 0;
    bool continues = false;
    for (unsigned number = 1; getline(&line, &size, file) >= 0; number++) {
        bool continued = is_continued(line);
        if (!continues) {
            before = programs.count;
            add_program(&programs, number, line);
        } else if (programs.count > before) { /* a comment continues, too */
            continue_program(&programs.each[before], line);
        }
        continues = continued;
    }
    free(line);
    fclose(file);
    return programs;
}

/* ---- tasks ---- */

/* The next range of a list such as 0,2-5. Returns false at its end. */
static bool next_range(const struct programs *programs, const struct program *program, const char **at,
                       unsigned long *first, unsigned long *last)
{
    *at += strspn(*at, ",");
    if (**at == 0)
        return false;
    char *end = (char *)*at;
    *first = *last = isdigit((unsigned char)**at) ? strtoul(*at, &end, 10) : 0;
    if (end > *at && *end == '-' && isdigit((unsigned char)end[1]))
        *last = strtoul(end + 1, &end, 10);
    if (end == *at || (*end != ',' && *end != 0)) {
        if (*end == '-')
            error_message("Invalid task range specification");
        else
            error_message("Invalid task range specification (%.*s)", (int)strcspn(*at, ","), *at);
        invalid(programs, program);
    }
    if (*first > *last) {
        error_message("Invalid task range, %lu-%lu", *first, *last);
        invalid(programs, program);
    }
    *at = end;
    return true;
}

struct claimed {
    uint32_t count; /* of tasks */
    bool given;     /* and there cannot be more */
    bool *each;
};

static void claim(const struct programs *programs, const struct program *program, struct claimed *claimed,
                  unsigned long first, unsigned long last)
{
    if (last >= claimed->count) {
        if (claimed->given || last >= MAXIMUM_TASKS) {
            error_message("Invalid task id, %lu >= ntasks", last);
            invalid(programs, program);
        }
        claimed->count = (uint32_t)last + 1;
    }
    for (unsigned long task = first; task <= last; task++) {
        if (claimed->each[task]) {
            error_message("Duplicate record for task %lu", task);
            invalid(programs, program);
        }
        claimed->each[task] = true;
    }
}

static bool is_rest(const struct program *program)
{
    return strcmp(program->tasks, "*") == 0;
}

static bool names_last(const struct programs *programs, size_t i)
{
    return i + 1 == programs->count;
}

uint32_t programs_count(const struct programs *programs, uint32_t ntasks, bool given)
{
    struct claimed claimed = {.count = ntasks, .given = given, .each = allocate(MAXIMUM_TASKS, sizeof(bool))};
    for (size_t i = 0; i < programs->count; i++) {
        const struct program *program = &programs->each[i];
        unsigned long first, last;
        if (is_rest(program)) {
            memset(claimed.each, true, claimed.count);
            if (names_last(programs, i))
                break;
            error_message("Task range specification with asterisk must be last");
            invalid(programs, program + 1);
        }
        for (const char *at = program->tasks; next_range(programs, program, &at, &first, &last);)
            claim(programs, program, &claimed, first, last);
    }
    for (uint32_t task = 0; task < claimed.count; task++)
        if (!claimed.each[task])
            error_exit(1, "Configuration file %s invalid, no record for task id %u", programs->path, task);
    free(claimed.each);
    return claimed.count;
}

/* ---- words ---- */

struct words {
    struct command command;
    struct buffer word;
    bool open; /* a word has begun */
};

static void add_text(struct words *words, const char *text, size_t size)
{
    buffer_append(&words->word, text, size);
    words->open = true;
}

static void end_word(struct words *words)
{
    if (!words->open)
        return;
    buffer_append(&words->word, "", 1);
    struct command *command = &words->command;
    command->words = resized(command->words, (size_t)command->count + 2, sizeof *command->words);
    command->words[command->count++] = words->word.data;
    command->words[command->count] = NULL;
    words->word = (struct buffer){0};
    words->open = false;
}

/* %t: the task's number; %o: its place among the tasks of this line. Slurm drops a % with any other letter. */
static const char *add_number(struct words *words, const char *at, uint32_t task, uint32_t offset)
{
    add_text(words, "", 0);
    if (at[1] == 't' || at[1] == 'o') {
        char *number = formatted("%u", at[1] == 't' ? task : offset);
        add_text(words, number, strlen(number));
        free(number);
    }
    return at + 1 + (at[1] != 0);
}

/* A word's piece of one kind, from `at` on; returns where the next one begins, or NULL where a quote has no end. */
static const char *add_piece(struct words *words, const char *at, uint32_t task, uint32_t offset)
{
    size_t size;
    switch (*at) {
    case '%': return add_number(words, at, task, offset);
    case '\\': /* before the end of a line: the next line goes on */
        add_text(words, at + 1, at[1] != 0 && at[1] != '\n');
        return at + 1 + (at[1] != 0);
    case '\'':
        size = strcspn(at + 1, "'");
        add_text(words, at + 1, size);
        return at[1 + size] == '\'' ? at + size + 2 : NULL;
    default:
        for (size = 0; at[size] != 0 && strchr("%\\'", at[size]) == NULL && !isspace((unsigned char)at[size]);)
            size++;
        add_text(words, at, size);
        return at + size;
    }
}

static struct command words_of(const struct programs *programs, const struct program *program, uint32_t task,
                               uint32_t offset)
{
    struct words words = {0};
    for (const char *at = program->words; *at != 0;) {
        if (isspace((unsigned char)*at)) {
            end_word(&words);
            at++;
            continue;
        }
        at = add_piece(&words, at, task, offset);
        if (at == NULL) {
            error_message("Program arguments specification format invalid: %s", program->words);
            invalid(programs, program);
        }
    }
    end_word(&words);
    if (words.command.count == 0)
        invalid(programs, program);
    return words.command;
}

static void give(const struct programs *programs, const struct program *program, struct command *commands,
                 uint32_t ntasks)
{
    unsigned long first, last;
    uint32_t offset = 0;
    if (is_rest(program)) { /* Slurm's %o is the task's number there */
        for (uint32_t task = 0; task < ntasks; task++)
            if (commands[task].count == 0)
                commands[task] = words_of(programs, program, task, task);
        return;
    }
    for (const char *at = program->tasks; next_range(programs, program, &at, &first, &last);)
        for (unsigned long task = first; task <= last && task < ntasks; task++)
            commands[task] = words_of(programs, program, (uint32_t)task, offset++);
}

struct command *programs_commands(const struct programs *programs, uint32_t ntasks, char **arguments, int count)
{
    struct command *commands = allocate(ntasks, sizeof *commands);
    for (size_t i = 0; i < programs->count; i++)
        give(programs, &programs->each[i], commands, ntasks);
    for (uint32_t task = 0; task < ntasks; task++) {
        struct command *command = &commands[task];
        command->words = resized(command->words, (size_t)command->count + (size_t)count + 1, sizeof *command->words);
        for (int i = 0; i < count; i++)
            command->words[command->count++] = arguments[i];
        command->words[command->count] = NULL;
    }
    return commands;
}
