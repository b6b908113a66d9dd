#define _GNU_SOURCE

#include "distribution.h"

#include "messages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 3 }; /* nodes, sockets, cores */

/* plane=SIZE, or plane and SLURM_DIST_PLANESIZE. */
static bool read_plane(const char *value, struct distribution_asked *asked)
{
    const char *size = strchr(value, '=') != NULL ? strchr(value, '=') + 1 : getenv("SLURM_DIST_PLANESIZE");
    char *end = NULL;
    long got = size != NULL ? strtol(size, &end, 10) : 0;
    if (size == NULL || end == size || *end != 0 || got <= 0 || got > INT_MAX) {
        error_message("Invalid plane size or size not specified");
        return false;
    }
    asked->given = true;
    asked->type = PLANE;
    asked->plane = (uint32_t)got;
    asked->levels = copied("plane");
    return true;
}

static bool read_flag(const char *word, struct distribution_asked *asked)
{
    asked->pack = asked->pack || strcasecmp(word, "pack") == 0;
    asked->nopack = asked->nopack || strcasecmp(word, "nopack") == 0;
    return strcasecmp(word, "pack") == 0 || strcasecmp(word, "nopack") == 0;
}

/* A level's word in Slurm's spelling; NULL: no such level. */
static const char *level_word(const char *word, int level, const char *sockets)
{
    static const char *const words[] = {"block", "cyclic", "fcyclic"};
    if (strcmp(word, "*") == 0)
        return level == 0 ? "block" : level == 1 ? "cyclic" : sockets;
    for (int i = 0; i < (level == 0 ? 2 : 3); i++)
        if (strcasecmp(word, words[i]) == 0)
            return words[i];
    return NULL;
}

/* block:cyclic:fcyclic and the like. */
static bool read_levels(char *text, struct distribution_asked *asked)
{
    struct buffer levels = {0};
    const char *sockets = NULL;
    char *rest = text, *word;
    int level = 0;
    for (; (word = strsep(&rest, ":")) != NULL; level++) {
        const char *known = level < LEVELS ? level_word(word, level, sockets) : NULL;
        if (known == NULL) {
            buffer_free(&levels);
            return false;
        }
        if (level == 0)
            asked->type = strcmp(known, "cyclic") == 0 ? CYCLIC : BLOCK;
        else if (level == 1)
            sockets = known;
        buffer_text(&levels, level > 0 ? ":" : "");
        buffer_text(&levels, known);
    }
    buffer_append(&levels, "", 1);
    asked->levels = levels.data;
    asked->given = true;
    return true;
}

static bool read_base(char *text, struct distribution_asked *asked)
{
    if (read_flag(text, asked))
        return true;
    if (strcasecmp(text, "arbitrary") != 0 && strcasecmp(text, "hostfile") != 0)
        return read_levels(text, asked);
    asked->given = true;
    asked->type = ARBITRARY;
    asked->levels = copied("arbitrary");
    return true;
}

bool distribution_read(const char *value, struct distribution_asked *asked)
{
    memset(asked, 0, sizeof *asked);
    bool good;
    if (strncasecmp(value, "plane", 5) == 0) {
        good = read_plane(value, asked);
    } else {
        char *text = copied(value), *flag = text, *base = strsep(&flag, ",");
        good = *base != 0 && read_base(base, asked) && (flag == NULL || *flag == 0 || read_flag(flag, asked));
        free(text);
    }
    if (!good)
        error_message("Invalid --distribution specification");
    return good;
}

char *distribution_text(const struct distribution_asked *asked, uint32_t ntasks, uint32_t nodes)
{
    const char *levels = asked->levels != NULL ? asked->levels : ntasks <= nodes ? "cyclic" : "block";
    return formatted("%s%s", levels, asked->pack ? ",pack" : asked->nopack ? ",nopack" : "");
}
