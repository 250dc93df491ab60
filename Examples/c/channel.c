// SPDX-FileCopyrightText: The Carillon authors
// SPDX-License-Identifier: Apache-2.0
//
// Posts and observes on a channel: a socket to the service beside the connection to the bus (docs/channel.md).
//
//     cc channel.c $(pkg-config --cflags --libs dbus-1) -o channel
//     channel NAME        observes NAME, posts it, and prints what comes up to the outcome of the post

#include <dbus/dbus.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POST = 1, OUTCOME, NOTIFICATION, DROPPED, SUSPENSION_CHANGED };
struct header { uint32_t length, kind; uint64_t number; };

static void end(const char *why) { fprintf(stderr, "%s\n", why); exit(1); }

// Calls a method whose arguments are texts and an a{sv} without entries.
static DBusMessage *call(DBusConnection *bus, const char *method, int texts, const char **text) {
    DBusMessage *message = dbus_message_new_method_call("org.carillon.NotificationCenter1",
        "/org/carillon/NotificationCenter1", "org.carillon.NotificationCenter1", method);
    DBusMessageIter arguments, options;
    dbus_message_iter_init_append(message, &arguments);
    for (int i = 0; i < texts; i++) dbus_message_iter_append_basic(&arguments, DBUS_TYPE_STRING, &text[i]);
    dbus_message_iter_open_container(&arguments, DBUS_TYPE_ARRAY, "{sv}", &options);
    dbus_message_iter_close_container(&arguments, &options);
    DBusError error = DBUS_ERROR_INIT;
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, message, -1, &error);
    if (!reply) end(error.message);
    dbus_message_unref(message);
    return reply;
}

// Values are aligned as D-Bus aligns them, counted from the beginning of the body.
static size_t append_text(char *body, size_t at, const char *text) {
    uint32_t length = strlen(text);
    at = (at + 3) & ~(size_t)3;
    memcpy(body + at, &length, 4);
    memcpy(body + at + 4, text, length + 1);
    return at + 4 + length + 1;
}

static size_t append_no_entries(size_t at) { return (((at + 3) & ~(size_t)3) + 4 + 7) & ~(size_t)7; }

static void receive(int channel, void *memory, size_t size) {
    for (ssize_t count; size > 0; memory = (char *)memory + count, size -= count)
        if ((count = read(channel, memory, size)) <= 0) end("the channel has ended: what comes now comes on the bus");
}

int main(int argc, char **argv) {
    if (argc != 2 || strlen(argv[1]) > 1000) end("usage: channel NAME");
    DBusError error = DBUS_ERROR_INIT;
    DBusConnection *bus = dbus_bus_get(DBUS_BUS_SESSION, &error);
    if (!bus) end(error.message);
    const char *texts[] = {argv[1], ""};
    dbus_message_unref(call(bus, "AddObserver", 2, texts));
    int channel;
    DBusMessage *reply = call(bus, "OpenChannel", 0, NULL);
    if (!dbus_message_get_args(reply, &error, DBUS_TYPE_UNIX_FD, &channel, DBUS_TYPE_INVALID)) end(error.message);
    dbus_message_unref(reply);
    fcntl(channel, F_SETFL, fcntl(channel, F_GETFL) & ~O_NONBLOCK);

    static char frame[2048];  // all zero, as padding has to be
    char *body = frame + sizeof(struct header);
    size_t size = append_no_entries(append_no_entries(append_text(body, append_text(body, 0, argv[1]), "")));
    struct header header = {size, POST, 1};
    memcpy(frame, &header, sizeof header);
    if (write(channel, frame, sizeof header + size) < 0) end("it can't be written");

    do {
        receive(channel, &header, sizeof header);
        char *got = malloc(header.length + 1);
        receive(channel, got, header.length);
        uint32_t first = 0;
        if (header.length >= 4) memcpy(&first, got, 4);
        if (header.kind == NOTIFICATION) printf("notification %llu %s\n", (unsigned long long)header.number, got + 4);
        if (header.kind == OUTCOME) printf("outcome %llu %u\n", (unsigned long long)header.number, first);
        free(got);
    } while (header.kind != OUTCOME);
    close(channel);
    return 0;
}
