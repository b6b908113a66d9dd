#define _GNU_SOURCE

#include "targets.h"

#include "srun/distribution.h"
#include "protocol/layout.h"
#include "base/names.h"
#include "image/image.h"
#include "srun/options.h"
#include "protocol/patterns.h"
#include "protocol/plan.h"
#include "srun/programs_file.h"
#include "base/texts.h"
#include "protocol/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VMS = 3, CPUS = 4 };

static char *names[] = {"vjob12-0", "vjob12-1", "vjob12-2", NULL};
static uint32_t all_cpus[] = {CPUS, CPUS, CPUS - 1};
static const struct vjob vjob = {
    .job_id = 12, .cpus = CPUS, .all_cpus = all_cpus, .memory_mib = 96, .ntasks = 2, .count = VMS, .names = names};

static char *text_of(const uint8_t *data, size_t size)
{
    char *text = allocate(size + 1, 1);
    memcpy(text, data, size);
    return text;
}

static void one_of(struct buffer *good, uint32_t choice, const char *const *examples)
{
    uint32_t count = 0;
    while (examples[count] != NULL)
        count++;
    buffer_text(good, examples[choice % count]);
}

/* ---- requests and layouts ---- */

static void example_requests(struct buffer *good, uint32_t choice)
{
    uint32_t vms[] = {0, 1, 2}, others[] = {2}, places[] = {2, 0, 2, 1};
    struct request each[] = {
        {.ntasks = 4, .cpus_per_task = 1, .vm_count = 2, .vms = vms, .must = choice % 2, .nodes = choice % 3},
        {.ntasks = 2, .cpus_per_task = 2, .vm_count = 1, .vms = others, .overlap = choice % 2},
    };
    each[0].distribution = choice % 4;
    each[0].plane = 1 + choice % 3;
    each[0].pack = choice % 2;
    if (each[0].distribution == ARBITRARY) {
        each[0].place_count = 4;
        each[0].places = places;
    }
    snprintf(each[0].name, sizeof each[0].name, "name");
    struct requests requests = {1 + choice % 2, each};
    requests_put(good, &requests);
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_layout(const struct requests *requests, const struct layout *layout)
{
    bool taken[VMS] = {false};
    uint32_t tasks = 0, given[VMS] = {0};
    check(layout->vm_count <= VMS && layout->ntasks == requests_tasks(requests));
    for (uint32_t i = 0; i < layout->vm_count; i++) {
        check(layout->vms[i] < VMS && !taken[layout->vms[i]] && layout->component[i] < requests->count);
        taken[layout->vms[i]] = true;
        tasks += layout->counts[i];
    }
    check(tasks == layout->ntasks);
    for (uint32_t task = 0; task < layout->ntasks; task++) {
        check(layout->node_of[task] < layout->vm_count);
        given[layout->node_of[task]]++;
    }
    for (uint32_t i = 0; i < layout->vm_count; i++)
        check(given[i] == layout->counts[i]);
}

static void parse_requests(const uint8_t *data, size_t size)
{
    struct reader reader = {(const char *)data, (const char *)data + size, false};
    struct requests requests;
    struct layout layout;
    const uint32_t used[VMS] = {size % 3, 0, size % 5};
    if (!requests_get(&reader, VMS, &requests))
        return;
    if (layout_make(&requests, VMS, all_cpus, used, &layout) == FITS) {
        check_layout(&requests, &layout);
        layout_free(&layout);
    }
    requests_free(&requests);
}

static void example_layout(struct buffer *good, uint32_t choice)
{
    uint32_t vms[] = {0, 1}, counts[] = {1 + choice % 3, 1}, component[] = {0, 0}, node_of[] = {0, 1, 0, 0};
    struct layout layout = {counts[0] + 1, 2, vms, counts, component, node_of};
    layout_put(good, &layout);
}

static void parse_layout(const uint8_t *data, size_t size)
{
    struct reader reader = {(const char *)data, (const char *)data + size, false};
    struct layout layout;
    if (layout_get(&reader, VMS, &layout))
        for (uint32_t i = 0; i < layout.vm_count; i++)
            check(layout.vms[i] < VMS && layout.counts[i] <= layout.ntasks);
    layout_free(&layout);
}

/* ---- plans ---- */

static void example_plan(struct buffer *good, uint32_t choice)
{
    uint32_t tasks[] = {0, 2}, command_of[] = {0, choice % 2};
    char *words[] = {"sh", "-c", "exit", NULL}, *environment[] = {"PATH=/bin", "A=b", NULL};
    struct command commands[] = {{3, words}, {1, words}};
    struct plan plan = {
        .job_id = 12, .ntasks = choice % 2 ? UINT32_MAX : 3, .node = 1, .nodes = 2, .local = 2, .tasks = tasks, .command_of = command_of,
        .streams = {{OVER_SRUN, ALL_TASKS, NULL}, {PER_TASK, 0, "o%4t.%n.%N.%u.%%"}, {NOWHERE, 1, NULL}},
        .name = "vjob12-1", .user = "alice", .directory = "/tmp", .command_count = 2, .commands = commands,
        .environment = {2, environment}, .task_prolog = "", .task_epilog = "/bin/true",
    };
    plan_put(good, &plan);
}

static void parse_plan(const uint8_t *data, size_t size)
{
    struct reader reader = {(const char *)data, (const char *)data + size, false};
    struct plan plan;
    if (!plan_get(&reader, &plan))
        return;
    for (uint32_t i = 0; i < plan.local; i++) {
        check(plan.command_of[i] < plan.command_count && plan.commands[plan.command_of[i]].count > 0);
        for (int stream = 0; stream < 3; stream++)
            free(pattern_of_task(plan.streams[stream].pattern, &plan, plan.tasks[i]));
    }
}

/* ---- answers ---- */

static void frame_to(struct buffer *good, uint8_t type, uint16_t vm, uint32_t task, const void *data, size_t size)
{
    struct connection to = {.in = -1, .out = -1};
    send_data(&to, type, vm, 0, task, data, size);
    buffer_append(good, buffer_data(&to.output), buffer_size(&to.output));
    buffer_free(&to.output);
}

static void example_answers(struct buffer *good, uint32_t choice)
{
    uint32_t vms[] = {0, 1}, counts[] = {2, 1}, component[] = {0, 1}, node_of[] = {0, 0, 1}, ended[] = {256, 0, 1};
    struct layout layout = {3, 2, vms, counts, component, node_of};
    struct buffer data = {0};
    layout_put(&data, &layout);
    frame_to(good, GRANT, 0, 0, buffer_data(&data), buffer_size(&data));
    buffer_free(&data);
    frame_to(good, OUTPUT, 0, choice % 3, "some\nlines", 10);
    frame_to(good, ERRORS, 1, 2, "x", 1);
    frame_to(good, INPUT_TAKEN, 0, 0, ended, 4);
    frame_to(good, EXITED, 0, 0, ended, sizeof ended);
    frame_to(good, choice % 2 ? DONE : FAILED, choice % 2, 0, "no connection", 14);
    frame_to(good, SAYS, 1, 0, "words\n", 6);
    frame_to(good, CANCELLED, 0, 0, NULL, 0);
}

static void parse_all_answers(const uint8_t *data, size_t size)
{
    parse_answers((const char *)data, size);
}

/* ---- texts of users ---- */

static void example_hosts(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"vjob12-[0-2]", "vjob12-0,vjob12-2*3", "vjob12-[0,2],vjob12-1", ",,", NULL};
    one_of(good, choice, examples);
}

static void parse_hosts(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    uint32_t *vms = NULL;
    int count = parse_host_list(&vjob, text, &vms);
    for (int i = 0; i < count; i++)
        check(vms[i] < VMS);
    free(vms);
    free(text);
}

static void example_pattern(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"%A_%a", "%4t.%N", "%%%t", "%j%J%s%u%x%n", "x%5", "%12t%b", NULL};
    one_of(good, choice, examples);
}

static void parse_pattern(const uint8_t *data, size_t size)
{
    const struct pattern_facts facts = {12, 3};
    const struct plan plan = {.name = "vjob12-0", .user = "alice", .node = 1};
    char *text = text_of(data, size);
    bool per_task;
    char *of_srun = pattern_of_srun(text, &facts, &per_task);
    free(pattern_of_task(of_srun, &plan, 7));
    free(pattern_unquoted(of_srun));
    free(of_srun);
    free(text);
}

static void example_programs(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {
        "# c\n0 echo 'a b' \\\n more %t\n* echo %o %%\n", "0-1 true\n2,3 sh -c 'exit %t'\n", "0 a\\ b\n1-3 x\n", NULL};
    one_of(good, choice, examples);
}

static void parse_programs(const uint8_t *data, size_t size)
{
    char path[64];
    int file = memfd_create("programs", 0);
    check(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct programs programs = programs_read(path);
    uint32_t ntasks = programs_count(&programs, 4, size % 2);
    struct command *commands = programs_commands(&programs, ntasks, names, 1);
    for (uint32_t task = 0; task < ntasks; task++)
        check(commands[task].count > 1 && commands[task].words[commands[task].count] == NULL);
    close(file);
}

static void example_distribution(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"plane=4", "block:cyclic:fcyclic,pack", "*:*:*", "arbitrary", "nopack", NULL};
    one_of(good, choice, examples);
}

static void parse_distribution(const uint8_t *data, size_t size)
{
    struct distribution_asked asked;
    char *text = text_of(data, size);
    if (distribution_read(text, &asked))
        free(distribution_text(&asked, 2, 3));
    free(text);
}

static void example_options(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {
        "-n\n3\n-N2\necho\nx\n:\n-n1\nsh",
        "--time=1-2:3:4\n-wvjob12-1\n--mem=50M\ntrue",
        "-m\nplane=2\n-x\nvjob12-0\n-O\n-n7\ntrue",
        "-c2\n--gres=gpu:0\n--ntasks-per-node=2\n-t5\ntrue",
        "-r1\n-o%t\n--open-mode=a\n-W3\n-K\n--export=A=b,ALL\ntrue",
        NULL,
    };
    one_of(good, choice, examples);
}

static void parse_options(const uint8_t *data, size_t size)
{
    enum { WORDS = 64 };
    char *text = text_of(data, size), *rest = text, *words[WORDS + 2] = {"srun"}, *word;
    int count = 1;
    while (count < WORDS && (word = strsep(&rest, "\n")) != NULL)
        words[count++] = word;
    struct options *options;
    uint32_t components = options_read(&options, &vjob, count, words);
    for (uint32_t i = 0; i < components; i++)
        check(options[i].words > 0 && options[i].request.ntasks > 0 && options[i].request.ntasks <= MAXIMUM_TASKS);
}

static void example_lines(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"key=value\nother = x\n", "a:b:c:d\n::\n", " 1  2\t3 \n", NULL};
    one_of(good, choice, examples);
}

static void parse_lines(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size), *rest = text, *line;
    value_of(text, "key");
    has_field(text, ':', 3, "c");
    has_field(text, ' ', 2, "2");
    while ((line = next_line(&rest)) != NULL)
        for (int number = 1; number < 5; number++) {
            free((char *)field_of(line, ':', number));
            free((char *)field_of(line, ' ', number));
        }
    free(text);
}

static void example_prolog(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"export A=b\nunset B\nprint c\n", "export  A = b=c\n print\n", NULL};
    one_of(good, choice, examples);
}

static void parse_prolog_output(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    parse_prolog(text);
    free(text);
}

static void example_orders(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"new 00ff\ncancel 1\nmore 2\n", "take 0123456789abcdef\nagain\n", NULL};
    one_of(good, choice, examples);
}

static void parse_all_orders(const uint8_t *data, size_t size)
{
    parse_orders((const char *)data, size);
}

static void example_base64(struct buffer *good, uint32_t choice)
{
    static const char *const examples[] = {"QUJD", "QUI=", "QQ==", "AAECAwQFBgcICQoLDA0ODxAREhM=", "+/+/", NULL};
    one_of(good, choice, examples);
}

static void parse_base64(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    for (size_t fit = 0; fit < 24; fit++) {
        uint8_t *bytes = malloc(fit > 0 ? fit : 1);
        check(decode_base64(text, bytes, fit) <= (ssize_t)fit);
        free(bytes);
    }
    free(text);
}

const struct target targets[] = {
    {"requests", example_requests, parse_requests, 4},
    {"layout", example_layout, parse_layout, 2},
    {"plan", example_plan, parse_plan, 2},
    {"answers", example_answers, parse_all_answers, 2},
    {"hosts", example_hosts, parse_hosts, 0},
    {"pattern", example_pattern, parse_pattern, 0},
    {"programs", example_programs, parse_programs, 0},
    {"distribution", example_distribution, parse_distribution, 0},
    {"options", example_options, parse_options, 0},
    {"lines", example_lines, parse_lines, 0},
    {"prolog", example_prolog, parse_prolog_output, 0},
    {"orders", example_orders, parse_all_orders, 0},
    {"base64", example_base64, parse_base64, 0},
    {NULL, NULL, NULL, 0},
};
