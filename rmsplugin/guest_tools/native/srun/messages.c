#define _GNU_SOURCE

#include "messages.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One write a line: other processes write there, too. */
static void print_line(const char *before, const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        return;
    dprintf(STDERR_FILENO, "srun: %s%s\n", before, text);
    free(text);
}

static bool quiet;

void messages_quiet(void)
{
    quiet = true;
}

void message(const char *format, ...)
{
    if (quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    print_line("", format, arguments);
    va_end(arguments);
}

void error_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line("error: ", format, arguments);
    va_end(arguments);
}

int error_code(void)
{
    const char *asked = getenv("SLURM_EXIT_ERROR");
    int code = asked != NULL ? atoi(asked) : 1;
    return code != 0 ? code : 1;
}

_Noreturn void error_exit(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line("error: ", format, arguments);
    va_end(arguments);
    exit(code == 1 ? error_code() : code);
}
