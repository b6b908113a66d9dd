#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void missing(const char *what)
{
    fprintf(stderr, "srun: error: this is no VM of a vjob: %s cannot be read\n", what);
    exit(1);
}

static char *line_of(FILE *file, size_t *size, char **line)
{
    if (getline(line, size, file) < 0)
        return NULL;
    (*line)[strcspn(*line, "\n")] = 0;
    return *line;
}

/* `3,3,2` for the VMs; VMs that are missing have as many as this one. */
static void read_all_cpus(struct vjob *vjob, const char *text)
{
    vjob->all_cpus = allocate(vjob->count, sizeof *vjob->all_cpus);
    for (size_t i = 0; i < vjob->count; i++) {
        char *end = NULL;
        unsigned long cpus = text != NULL ? strtoul(text, &end, 10) : 0;
        vjob->all_cpus[i] = cpus > 0 && cpus <= UINT16_MAX ? (uint32_t)cpus : vjob->cpus;
        text = end != NULL && *end == ',' ? end + 1 : NULL;
    }
}

/* The text about all VMs' CPUs there; NULL: none. */
static char *read_facts(struct vjob *vjob)
{
    const struct {
        const char *key;
        uint32_t *value;
    } facts[] = {
        {"job_id", &vjob->job_id}, {"index", &vjob->index},   {"cpus", &vjob->cpus},
        {"memory_mib", &vjob->memory_mib}, {"ntasks", &vjob->ntasks},
        {"slurm_release", &vjob->slurm_release}, {"kill_wait", &vjob->kill_wait},
    };
    FILE *file = fopen(VJOB_ETC "/vjob", "re");
    if (file == NULL)
        missing(VJOB_ETC "/vjob");
    snprintf(vjob->slurm_version, sizeof vjob->slurm_version, "?");
    char *line = NULL, *all_cpus = NULL;
    size_t size = 0;
    while (line_of(file, &size, &line) != NULL) {
        char *value = strchr(line, '=');
        if (strncmp(line, "slurm_release=", 14) == 0)
            snprintf(vjob->slurm_version, sizeof vjob->slurm_version, "%s", value + 1);
        else if (strncmp(line, "all_cpus=", 9) == 0 && all_cpus == NULL)
            all_cpus = copied(value + 1);
        for (size_t i = 0; value != NULL && i < sizeof facts / sizeof *facts; i++)
            if (strlen(facts[i].key) == (size_t)(value - line) &&
                strncmp(line, facts[i].key, (size_t)(value - line)) == 0)
                *facts[i].value = (uint32_t)strtoul(value + 1, NULL, 10);
    }
    free(line);
    fclose(file);
    return all_cpus;
}

struct vjob vjob_read(void)
{
    struct vjob vjob = {.kill_wait = 30}; /* Slurm's default, if the VM has no other value */
    char *all_cpus = read_facts(&vjob);
    FILE *file = fopen(VJOB_ETC "/hostfile", "re");
    if (file == NULL)
        missing(VJOB_ETC "/hostfile");
    char *line = NULL;
    size_t size = 0;
    while (line_of(file, &size, &line) != NULL) {
        vjob.names = resized(vjob.names, vjob.count + 1, sizeof *vjob.names);
        vjob.names[vjob.count++] = copied(line);
    }
    free(line);
    fclose(file);
    if (vjob.count == 0 || vjob.count > UINT16_MAX || vjob.index >= vjob.count)
        missing("its list of VMs");
    read_all_cpus(&vjob, all_cpus);
    free(all_cpus);
    return vjob;
}

static void append_number(struct buffer *text, const char *before, uint32_t number)
{
    char word[16];
    snprintf(word, sizeof word, "%u", number);
    buffer_text(text, before);
    buffer_text(text, word);
}

static char *finished(struct buffer *text)
{
    buffer_append(text, "", 1);
    return text->data;
}

char *ranges(const uint32_t *sorted, size_t count)
{
    struct buffer text = {0};
    for (size_t i = 0; i < count; i++) {
        size_t last = i;
        while (last + 1 < count && sorted[last + 1] == sorted[last] + 1)
            last++;
        append_number(&text, i > 0 ? "," : "", sorted[i]);
        if (last > i)
            append_number(&text, "-", sorted[last]);
        i = last;
    }
    return finished(&text);
}

char *counts_list(const uint32_t *counts, size_t count)
{
    struct buffer text = {0};
    for (size_t i = 0; i < count; i++) {
        size_t last = i;
        while (last + 1 < count && counts[last + 1] == counts[i])
            last++;
        append_number(&text, i > 0 ? "," : "", counts[i]);
        if (last > i) {
            append_number(&text, "(x", (uint32_t)(last - i + 1));
            buffer_text(&text, ")");
        }
        i = last;
    }
    return finished(&text);
}

/* The number at the end of a VM's name, or -1 when names have another form. */
static long number_of(const char *name)
{
    const char *dash = strrchr(name, '-');
    if (dash == NULL || dash[1] == 0 || strspn(dash + 1, "0123456789") != strlen(dash + 1))
        return -1;
    return strtol(dash + 1, NULL, 10);
}

static size_t stem_size(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash == NULL ? 0 : (size_t)(dash - name) + 1;
}

char *host_list(const struct vjob *vjob, const uint32_t *vms, size_t count)
{
    const char *first = vjob->names[vms[0]];
    size_t stem = stem_size(first);
    uint32_t *numbers = allocate(count, sizeof *numbers);
    bool alike = count > 1;
    for (size_t i = 0; i < count; i++) {
        const char *name = vjob->names[vms[i]];
        alike = alike && number_of(name) >= 0 && stem_size(name) == stem && strncmp(name, first, stem) == 0;
        numbers[i] = (uint32_t)number_of(name);
    }
    struct buffer text = {0};
    if (alike) {
        char *inside = ranges(numbers, count);
        buffer_append(&text, first, stem);
        buffer_text(&text, "[");
        buffer_text(&text, inside);
        buffer_text(&text, "]");
        free(inside);
    } else {
        for (size_t i = 0; i < count; i++) {
            buffer_text(&text, i > 0 ? "," : "");
            buffer_text(&text, vjob->names[vms[i]]);
        }
    }
    free(numbers);
    return finished(&text);
}

/* The VMs of a list, in its order. */
struct vm_list {
    const struct vjob *vjob;
    uint32_t *vms;
    size_t count, room;
};

enum { LISTED_LIMIT = 1 << 20 };

static bool add_vm(struct vm_list *list, const char *name, size_t size)
{
    uint32_t vm = 0;
    while (vm < list->vjob->count &&
           (strlen(list->vjob->names[vm]) != size || strncmp(list->vjob->names[vm], name, size) != 0))
        vm++;
    if (vm == list->vjob->count || list->count >= LISTED_LIMIT)
        return false;
    if (list->count == list->room) {
        list->room = 2 * list->room + 8;
        list->vms = resized(list->vms, list->room, sizeof *list->vms);
    }
    list->vms[list->count++] = vm;
    return true;
}

static bool add_bracket(struct vm_list *list, const char *text, size_t stem);

/* An item of a list: STEM[0-2,4], or a name; a number of repetitions may stand behind it: NAME*3, as in Slurm's hostfiles. */
static bool add_item(struct vm_list *list, const char *text, size_t size)
{
    const char *star = memchr(text, '*', size);
    unsigned long times = star != NULL ? strtoul(star + 1, NULL, 10) : 1;
    size_t name = star != NULL ? (size_t)(star - text) : size;
    const char *bracket = memchr(text, '[', name);
    if (times == 0 || times > LISTED_LIMIT)
        return false;
    for (unsigned long i = 0; i < times; i++)
        if (bracket != NULL ? !add_bracket(list, text, (size_t)(bracket - text)) : !add_vm(list, text, name))
            return false;
    return true;
}

static bool add_bracket(struct vm_list *list, const char *text, size_t stem)
{
    const char *at = text + stem + 1;
    while (*at != ']') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at)
            return false;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (first > last || last > UINT16_MAX || (*end != ',' && *end != ']'))
            return false;
        for (unsigned long number = first; number <= last; number++) {
            char *name = formatted("%.*s%lu", (int)stem, text, number);
            bool known = add_vm(list, name, strlen(name));
            free(name);
            if (!known)
                return false;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* The length of the item that begins there; 0: a bracket has no end. */
static size_t item_size(const char *text)
{
    size_t size = strcspn(text, ",[");
    if (text[size] != '[')
        return size;
    const char *close = strchr(text, ']');
    return close == NULL ? 0 : (size_t)(close - text) + strcspn(close, ",");
}

int parse_host_list(const struct vjob *vjob, const char *text, uint32_t **vms)
{
    struct vm_list list = {.vjob = vjob};
    bool good = true;
    for (text += strspn(text, ","); good && *text != 0; text += strspn(text, ",")) {
        size_t size = item_size(text);
        good = size > 0 && add_item(&list, text, size);
        text += size;
    }
    if (!good) {
        free(list.vms);
        list.vms = NULL;
    }
    *vms = list.vms;
    return good ? (int)list.count : -1;
}
