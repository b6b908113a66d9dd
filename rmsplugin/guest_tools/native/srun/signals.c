#define _GNU_SOURCE

#include "signals.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int number;
    const char *name, *words;
} known[] = {
    {SIGHUP, "HUP", "Hangup"},           {SIGINT, "INT", "Interrupt"},
    {SIGQUIT, "QUIT", "Quit"},           {SIGILL, "ILL", "Illegal instruction"},
    {SIGTRAP, "TRAP", "Trace/breakpoint trap"}, {SIGABRT, "ABRT", "Aborted"},
    {SIGBUS, "BUS", "Bus error"},        {SIGFPE, "FPE", "Floating point exception"},
    {SIGKILL, "KILL", "Killed"},         {SIGUSR1, "USR1", "User defined signal 1"},
    {SIGSEGV, "SEGV", "Segmentation fault"}, {SIGUSR2, "USR2", "User defined signal 2"},
    {SIGPIPE, "PIPE", "Broken pipe"},    {SIGALRM, "ALRM", "Alarm clock"},
    {SIGTERM, "TERM", "Terminated"},     {SIGCONT, "CONT", "Continued"},
    {SIGSTOP, "STOP", "Stopped (signal)"}, {SIGTSTP, "TSTP", "Stopped"},
    {SIGTTIN, "TTIN", "Stopped (tty input)"}, {SIGTTOU, "TTOU", "Stopped (tty output)"},
    {SIGURG, "URG", "Urgent I/O condition"}, {SIGXCPU, "XCPU", "CPU time limit exceeded"},
    {SIGXFSZ, "XFSZ", "File size limit exceeded"}, {SIGVTALRM, "VTALRM", "Virtual timer expired"},
    {SIGPROF, "PROF", "Profiling timer expired"}, {SIGWINCH, "WINCH", "Window changed"},
    {SIGIO, "IO", "I/O possible"},       {SIGPWR, "PWR", "Power failure"},
    {SIGSYS, "SYS", "Bad system call"},  {SIGSTKFLT, "STKFLT", "Stack fault"},
};

int signal_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text != 0 && *end == 0)
        return number > 0 && number < NSIG ? (int)number : 0;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(text, known[i].name) == 0)
            return known[i].number;
    return 0;
}

const char *signal_words(int number)
{
    static char other[32];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number)
            return known[i].words;
    snprintf(other, sizeof other, "Real-time signal %d", number - SIGRTMIN);
    return other;
}
