#include "image.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

ssize_t decode_base64(const char *text, void *bytes, size_t fit)
{
    unsigned char *end = bytes;
    size_t length = strlen(text), padding = 0;
    unsigned bits = 0;
    while (padding < 2 && padding < length && text[length - padding - 1] == '=')
        padding++;
    if (length % 4 != 0 || length / 4 * 3 - padding > fit)
        return -1;
    for (size_t i = 0; i < length - padding; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL)
            return -1;
        bits = bits << 6 | (unsigned)(digit - digits);
        if (i % 4 != 0)
            *end++ = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return end - (unsigned char *)bytes;
}
