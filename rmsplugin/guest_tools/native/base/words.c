#include "words.h"

#include "memory.h"
#include "texts.h"

#include <stddef.h>
#include <string.h>

char **words_of(const char *path, char **words)
{
    enum { BEFORE = 2 }; /* set, -- */
    const char *at = text_of_file(path).bytes;
    size_t count = 0, number = 0;
    while (words[count] != NULL)
        count++;
    while (*(at += strspn(at, " \n")) != '\0') {
        struct buffer word = {0};
        if (strcmp(at, "\"$@\"\n") == 0)
            break;
        for (char quote = 0; *at != '\0' && (quote != 0 || strchr(" \n", *at) == NULL); at++)
            if (quote == 0 && (*at == '\'' || *at == '"'))
                quote = *at;
            else if (*at == quote)
                quote = 0;
            else
                buffer_append(&word, at, 1);
        buffer_append(&word, "", 1);
        if (number++ < BEFORE)
            continue;
        words = resized(words, count + 2, sizeof *words);
        words[count++] = buffer_data(&word);
        words[count] = NULL;
    }
    return words;
}
