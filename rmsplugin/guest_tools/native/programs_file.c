#define _GNU_SOURCE

#include "programs_file.h"

#include "messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next word of a line; quotes and backslashes as a shell's. NULL at its end. */
static char *next_word(char **at)
{
    while (isspace((unsigned char)**at))
        (*at)++;
    if (**at == 0)
        return NULL;
    char *word = *at, *to = *at, quote = 0;
    for (; **at != 0 && (quote != 0 || !isspace((unsigned char)**at)); (*at)++) {
        if (quote != 0 ? **at == quote : **at == '"' || **at == '\'') {
            quote = quote != 0 ? 0 : **at;
            continue;
        }
        if (**at == '\\' && quote != '\'' && (*at)[1] != 0)
            (*at)++;
        *to++ = **at;
    }
    if (**at != 0)
        (*at)++;
    *to = 0;
    return word;
}

/* %t: the task's number; %o: its place among the tasks of this line; %%: %. */
static char *filled_in(const char *word, uint32_t task, uint32_t offset)
{
    struct buffer text = {0};
    for (; *word != 0; word++) {
        if (*word == '%' && (word[1] == 't' || word[1] == 'o' || word[1] == '%')) {
            char *number = word[1] == '%' ? copied("%") : formatted("%u", word[1] == 't' ? task : offset);
            buffer_text(&text, number);
            free(number);
            word++;
        } else {
            buffer_append(&text, word, 1);
        }
    }
    buffer_append(&text, "", 1);
    return text.data;
}

struct line {
    char **words;
    uint32_t count;
};

static void give(struct command *command, const struct line *line, uint32_t task, uint32_t offset, char **arguments,
                 int more)
{
    if (command->count > 0)
        error_exit(1, "task %u has two commands in the file of --multi-prog", task);
    command->count = line->count + (uint32_t)more;
    command->words = allocate((size_t)command->count + 1, sizeof *command->words);
    for (uint32_t i = 0; i < line->count; i++)
        command->words[i] = filled_in(line->words[i], task, offset);
    for (int i = 0; i < more; i++)
        command->words[line->count + (uint32_t)i] = arguments[i];
}

static void give_all(struct command *commands, uint32_t ntasks, char *tasks, const struct line *line, char **arguments,
                     int more)
{
    if (strcmp(tasks, "*") == 0) {
        for (uint32_t task = 0, offset = 0; task < ntasks; task++)
            if (commands[task].count == 0)
                give(&commands[task], line, task, offset++, arguments, more);
        return;
    }
    uint32_t offset = 0;
    for (char *at = tasks;;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (isdigit((unsigned char)*at) && *end == '-')
            last = strtoul(end + 1, &end, 10);
        if (!isdigit((unsigned char)*at) || (*end != 0 && *end != ',') || first > last)
            error_exit(1, "Invalid task numbers \"%s\" in the file of --multi-prog", tasks);
        for (unsigned long task = first; task <= last && task < ntasks; task++)
            give(&commands[task], line, (uint32_t)task, offset++, arguments, more);
        if (*end == 0)
            return;
        at = end + 1;
    }
}

static void read_line(char *text, struct command *commands, uint32_t ntasks, char **arguments, int more)
{
    struct line line = {0};
    char *tasks = next_word(&text), *word;
    if (tasks == NULL || *tasks == '#')
        return;
    while ((word = next_word(&text)) != NULL) {
        line.words = resized(line.words, line.count + 1, sizeof *line.words);
        line.words[line.count++] = word;
    }
    if (line.count == 0)
        error_exit(1, "No command for tasks %s in the file of --multi-prog", tasks);
    give_all(commands, ntasks, tasks, &line, arguments, more);
    free(line.words);
}

struct command *programs_read(const char *path, uint32_t ntasks, char **arguments, int count)
{
    struct command *commands = allocate(ntasks, sizeof *commands);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        error_exit(1, "Unable to open the file of --multi-prog, %s", path);
    char *text = NULL;
    size_t size = 0;
    while (getline(&text, &size, file) >= 0)
        read_line(text, commands, ntasks, arguments, count);
    free(text);
    fclose(file);
    for (uint32_t task = 0; task < ntasks; task++)
        if (commands[task].count == 0)
            error_exit(1, "Configuration file %s invalid, no record for task id %u", path, task);
    return commands;
}
