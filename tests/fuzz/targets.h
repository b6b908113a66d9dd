/* What is fuzzed. */

#ifndef TARGETS_H
#define TARGETS_H

#include "base/memory.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target {
    const char *name;
    void (*example)(struct buffer *good, uint32_t choice); /* input as it should be */
    void (*parse)(const uint8_t *data, size_t size);
    unsigned examples; /* that get each number at each of their places */
};

extern const struct target targets[];

_Noreturn void __real__exit(int code);

/* Of sources whose functions are their own: prologs.c, orders.c, answers.c. */
void parse_prolog(char *text);
void parse_orders(const char *data, size_t size);
void parse_answers(const char *data, size_t size);

#endif
