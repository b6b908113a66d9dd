/* Fuzzes the parsers of the guest's program with mutations of good input: parsers SEED ROUNDS [TARGET]. It is linked with
 * the sources in rmsplugin/guest_tools/native and with sanitizers (tests/fuzz/__init__.py). The same seed is the same
 * input. What makes a parser fail is printed, in hexadecimal. */

#define _GNU_SOURCE

#include "targets.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sanitizer/common_interface_defs.h>

enum { MOST = 4096, BATCH = 250 };

static struct {
    uint8_t data[MOST];
    size_t size;
} input;

static jmp_buf ended;
static int report = 2;

/* A parser that refuses its input ends the program. */
void __wrap_exit(int code)
{
    longjmp(ended, code + 1);
}

void __wrap__exit(int code)
{
    longjmp(ended, code + 1);
}

/* ---- chance ---- */

static uint64_t state;

static uint32_t chance(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) % below);
}

/* ---- mutations ---- */

static void remove_some(void)
{
    size_t at = chance((uint32_t)input.size), size = 1 + chance(8);
    if (size > input.size - at)
        size = input.size - at;
    memmove(input.data + at, input.data + at + size, input.size - at - size);
    input.size -= size;
}

static void repeat_some(void)
{
    uint8_t copy[64];
    size_t at = chance((uint32_t)input.size), size = 1 + chance(sizeof copy);
    if (size > input.size - at)
        size = input.size - at;
    if (input.size + size > MOST)
        return;
    memcpy(copy, input.data + at, size);
    memmove(input.data + at + size, input.data + at, input.size - at);
    memcpy(input.data + at, copy, size);
    input.size += size;
}

static const uint32_t numbers[] = {0,     1,     2,       3,         127,            128,            255,       256,
                                   65535, 65536, 1 << 20, INT32_MAX, INT32_MAX + 1U, UINT32_MAX - 1, UINT32_MAX};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void put_number_somewhere(void)
{
    uint32_t number = numbers[chance(NUMBERS)];
    if (input.size >= 4)
        memcpy(input.data + chance((uint32_t)input.size - 3), &number, 4);
}

static void put_letter_somewhere(void)
{
    static const char letters[] = "%*,-:=[]'\"\\# \t\n\r/0129atnNxujJs.\177\377";
    input.data[chance((uint32_t)input.size)] = (uint8_t)letters[chance(sizeof letters)];
}

static void mutate(void)
{
    if (input.size == 0) {
        input.data[0] = (uint8_t)chance(256);
        input.size = 1;
    }
    switch (chance(6)) {
    case 0: input.data[chance((uint32_t)input.size)] ^= (uint8_t)(1 << chance(8)); break;
    case 1: put_number_somewhere(); break;
    case 2: put_letter_somewhere(); break;
    case 3: remove_some(); break;
    case 4: repeat_some(); break;
    default: input.size = chance((uint32_t)input.size + 1);
    }
}

/* ---- rounds ---- */

static void show_input(void)
{
    dprintf(report, "\ninput of %zu bytes: ", input.size);
    for (size_t i = 0; i < input.size; i++)
        dprintf(report, "%02x", input.data[i]);
    dprintf(report, "\n");
}

static void take_example(const struct target *target, uint32_t choice)
{
    struct buffer good = {0};
    target->example(&good, choice);
    input.size = buffer_size(&good) < MOST ? buffer_size(&good) : MOST;
    memcpy(input.data, buffer_data(&good), input.size);
    buffer_free(&good);
}

static void parse(const struct target *target)
{
    uint8_t *data = malloc(input.size + 1); /* of that very size: a byte too far is seen */
    memcpy(data, input.data, input.size);
    uint8_t *exact = realloc(data, input.size > 0 ? input.size : 1);
    if (setjmp(ended) == 0)
        target->parse(exact, input.size);
    free(exact);
}

static void once(const struct target *target)
{
    take_example(target, chance(64));
    for (uint32_t changes = chance(6); changes > 0; changes--)
        mutate();
    parse(target);
}

/* Each number at each place: a count that nobody checks is found. */
static void all_numbers(const struct target *target, uint32_t choice)
{
    take_example(target, choice);
    for (size_t at = 0; at + 4 <= input.size; at++)
        for (int i = 0; i < NUMBERS; i++) {
            memcpy(input.data + at, &numbers[i], 4);
            parse(target);
            take_example(target, choice);
        }
}

/* Many rounds in a process of its own, which takes with it what parsers leave behind; 0: all numbers in one example. */
static int batch(const struct target *target, unsigned seed, unsigned rounds)
{
    pid_t process = fork();
    if (process == 0) {
        state = 0x9E3779B97F4A7C15U * (seed + 1U);
        if (rounds == 0)
            all_numbers(target, seed);
        for (; rounds > 0; rounds--)
            once(target);
        signal(SIGABRT, SIG_DFL);
        kill(getpid(), SIGUSR1); /* all is well: exit is not what it was */
    }
    int status = 0;
    waitpid(process, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1)
        return 0;
    dprintf(report, "%s: a parser failed (status %#x)\n", target->name, status);
    return 1;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1, rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 2000;
    static int failed;
    if (setjmp(ended) != 0)
        kill(getpid(), SIGKILL);
    report = dup(2);
    __sanitizer_set_death_callback(show_input);
    if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
        return 2;
    for (const struct target *target = targets; target->name != NULL; target++) {
        if (argc > 3 && strcmp(argv[3], target->name) != 0)
            continue;
        for (unsigned choice = 0; choice < target->examples; choice++)
            failed |= batch(target, choice, 0);
        for (unsigned done = 0; done < rounds; done += BATCH)
            failed |= batch(target, seed * 1000003U + done, rounds - done < BATCH ? rounds - done : BATCH);
        dprintf(report, "%s: %u rounds\n", target->name, rounds);
    }
    __real__exit(failed);
}
