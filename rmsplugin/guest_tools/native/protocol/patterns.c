#define _GNU_SOURCE

#include "patterns.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 10 }; /* zeros before a number, at most */

#define NO_ARRAY (UINT32_MAX - 1) /* Slurm's number for a job that is no element of an array */

/* A piece of a pattern: text as it is, or a field such as %4t. */
struct piece {
    const char *text;
    size_t size; /* of the whole piece */
    char letter; /* 0: text */
    int width;
};

static bool next_piece(const char **at, struct piece *piece)
{
    const char *start = *at, *end = start;
    if (*start == 0)
        return false;
    *piece = (struct piece){.text = start};
    if (*start != '%') {
        end += strcspn(start, "%");
    } else {
        for (end++; isdigit((unsigned char)*end); end++)
            piece->width = piece->width <= WIDEST ? piece->width * 10 + (*end - '0') : piece->width;
        piece->width = piece->width > WIDEST ? WIDEST : piece->width;
        piece->letter = *end;
        end += *end != 0;
    }
    piece->size = (size_t)(end - start);
    *at = end;
    return true;
}

static void add_number(struct buffer *name, uint32_t value, int width)
{
    char *word = formatted("%0*" PRIu32, width, value);
    buffer_text(name, word);
    free(word);
}

static uint32_t number_in(const char *variable, uint32_t otherwise)
{
    const char *value = getenv(variable);
    return value != NULL ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

/* Text that the step has to take as it is. */
static void add_quoted(struct buffer *name, const char *text)
{
    for (; *text != 0; text++)
        buffer_append(name, *text == '%' ? "%%" : text, *text == '%' ? 2 : 1);
}

static bool add_of_srun(struct buffer *name, const struct piece *piece, const struct pattern_facts *facts)
{
    const char *job_name = getenv("SLURM_JOB_NAME");
    switch (piece->letter) {
    case 'a': add_number(name, number_in("SLURM_ARRAY_TASK_ID", NO_ARRAY), piece->width); return true;
    case 'A': add_number(name, number_in("SLURM_ARRAY_JOB_ID", facts->job_id), piece->width); return true;
    case 'j':
    case 'J':
        add_number(name, facts->job_id, piece->width);
        if (piece->letter == 'J') {
            buffer_text(name, ".");
            add_number(name, facts->step, 0);
        }
        return true;
    case 's': add_number(name, facts->step, piece->width); return true;
    case 'x': add_quoted(name, job_name != NULL ? job_name : "(null)"); return true;
    default: return false;
    }
}

char *pattern_of_srun(const char *given, const struct pattern_facts *facts, bool *per_task)
{
    struct buffer name = {0};
    struct piece piece;
    *per_task = false;
    for (const char *at = given; next_piece(&at, &piece);) {
        if (add_of_srun(&name, &piece, facts))
            continue;
        *per_task = *per_task || (piece.letter != 0 && strchr("nNtu", piece.letter) != NULL);
        buffer_append(&name, piece.text, piece.size);
    }
    buffer_append(&name, "", 1);
    return name.data;
}

char *pattern_of_task(const char *pattern, const struct plan *plan, uint32_t task)
{
    struct buffer name = {0};
    struct piece piece;
    for (const char *at = pattern; next_piece(&at, &piece);)
        switch (piece.letter) {
        case 't': add_number(&name, task, piece.width); break;
        case 'n': add_number(&name, plan->node - plan->first_node, piece.width); break;
        case 'N': buffer_text(&name, plan->name); break;
        case 'u': buffer_text(&name, plan->user); break;
        case '%': buffer_text(&name, "%"); break;
        default: buffer_append(&name, piece.text, piece.size);
        }
    buffer_append(&name, "", 1);
    return name.data;
}

char *pattern_unquoted(const char *pattern)
{
    struct buffer name = {0};
    struct piece piece;
    for (const char *at = pattern; next_piece(&at, &piece);)
        buffer_append(&name, piece.text, piece.letter == '%' ? 1 : piece.size);
    buffer_append(&name, "", 1);
    return name.data;
}
