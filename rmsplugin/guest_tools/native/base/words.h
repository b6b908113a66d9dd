/* Words that the wrapper has quoted in a file for the script's start. */

#ifndef WORDS_H
#define WORDS_H

/* The words of a file of the wrapper's, added to the present ones: `set -- 'A WORD' WORD ... "$@"`, quoted as Python's shlex
 * does, where "$@" stands for the words of another file. Words end with a NULL. */
char **words_of(const char *path, char **words);

#endif
