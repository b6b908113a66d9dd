#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void pack(unsigned char *at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t unpack(const char *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)(unsigned char)at[i] << (8 * i);
    return value;
}

void connection_open(struct connection *connection, int in, int out)
{
    memset(connection, 0, sizeof *connection);
    connection->in = in;
    connection->out = out;
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
}

void connection_close(struct connection *connection)
{
    close(connection->in);
    if (connection->out != connection->in)
        close(connection->out);
    buffer_free(&connection->input);
    buffer_free(&connection->output);
    connection->in = connection->out = -1;
    connection->broken = true;
}

static bool passing(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

void connection_fill(struct connection *connection)
{
    char *room = buffer_room(&connection->input, CHUNK * 4);
    ssize_t got = read(connection->in, room, CHUNK * 4);
    if (got > 0)
        buffer_added(&connection->input, (size_t)got);
    else if (got == 0 || !passing(errno))
        connection->broken = true;
}

void connection_flush(struct connection *connection)
{
    while (buffer_size(&connection->output) > 0) {
        ssize_t put = write(connection->out, buffer_data(&connection->output), buffer_size(&connection->output));
        if (put < 0) {
            /* Nobody reads it any more. The other side's last words are still to be read, up to their end. */
            if (!passing(errno))
                buffer_taken(&connection->output, buffer_size(&connection->output));
            return;
        }
        buffer_taken(&connection->output, (size_t)put);
    }
}

bool connection_next(struct connection *connection, struct frame *frame)
{
    if (buffer_size(&connection->input) < FRAME_HEADER)
        return false;
    char *at = buffer_data(&connection->input);
    uint32_t size = unpack(at, 4);
    if (size > FRAME_LIMIT) {
        connection->broken = true;
        return false;
    }
    if (buffer_size(&connection->input) < FRAME_HEADER + (size_t)size)
        return false;
    frame->size = size;
    frame->type = (uint8_t)at[4];
    frame->vm = (uint16_t)unpack(at + 6, 2);
    frame->step = unpack(at + 8, 4);
    frame->task = unpack(at + 12, 4);
    frame->data = at + FRAME_HEADER;
    /* The bytes stay where they are until the next read makes room. */
    connection->input.start += FRAME_HEADER + (size_t)size;
    return true;
}

void send_data(struct connection *connection, uint8_t type, uint16_t vm, uint32_t step, uint32_t task, const void *data,
               size_t size)
{
    unsigned char header[FRAME_HEADER] = {0};
    pack(header, (uint32_t)size, 4);
    header[4] = type;
    pack(header + 6, vm, 2);
    pack(header + 8, step, 4);
    pack(header + 12, task, 4);
    buffer_append(&connection->output, header, sizeof header);
    buffer_append(&connection->output, data, size);
}

void connection_send(struct connection *connection, const struct frame *frame)
{
    send_data(connection, frame->type, frame->vm, frame->step, frame->task, frame->data, frame->size);
}

void send_number(struct connection *connection, uint8_t type, uint16_t vm, uint32_t step, uint32_t number)
{
    unsigned char data[4];
    pack(data, number, 4);
    send_data(connection, type, vm, step, 0, data, sizeof data);
}

struct reader reader_of(const struct frame *frame)
{
    return (struct reader){frame->data, frame->data + frame->size, false};
}

uint32_t get_number(struct reader *reader)
{
    if (reader->end - reader->at < 4) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    reader->at += 4;
    return unpack(reader->at - 4, 4);
}

size_t numbers_left(const struct reader *reader)
{
    return (size_t)(reader->end - reader->at) / 4;
}

const char *get_text(struct reader *reader)
{
    const char *text = reader->at;
    const char *end = reader->at < reader->end ? memchr(text, 0, (size_t)(reader->end - text)) : NULL;
    if (end == NULL) {
        reader->bad = true;
        reader->at = reader->end;
        return "";
    }
    reader->at = end + 1;
    return text;
}

void put_number(struct buffer *buffer, uint32_t number)
{
    unsigned char data[4];
    pack(data, number, 4);
    buffer_append(buffer, data, sizeof data);
}

void put_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text) + 1);
}
