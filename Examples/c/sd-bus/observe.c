// SPDX-License-Identifier: Apache-2.0
// Prints notifications: observe [NAME]
#define _GNU_SOURCE  // asprintf
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#define CENTER "org.carillon.NotificationCenter1"
#define PATH "/org/carillon/NotificationCenter1"

static const char *name = "com.example.Saved";
static char owner[256];  // the unique name of the service

static void check(int result, sd_bus_error *error) {
    if (result >= 0) return;
    fprintf(stderr, "%s\n", error && error->message ? error->message : strerror(-result));
    exit(1);
}

static void observe(sd_bus *bus) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply;
    // A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    check(sd_bus_call_method(bus, CENTER, PATH, CENTER, "RemoveObservers", &error, NULL, "ss", "", ""), &error);
    check(sd_bus_call_method(bus, CENTER, PATH, CENTER, "AddObserver", &error, &reply, "ssa{sv}", name, "",
                             1, "retained", "b", 1), &error);
    snprintf(owner, sizeof owner, "%s", sd_bus_message_get_sender(reply));
    sd_bus_message_unref(reply);
    printf("observing %s\n", name);
}

// The service went, or another one is there. Calling it has the bus start it.
static int owner_changed(sd_bus_message *message, void *data, sd_bus_error *error) {
    const char *new_owner;
    check(sd_bus_message_read(message, "sss", NULL, NULL, &new_owner), NULL);
    if (strcmp(new_owner, owner) != 0) observe(sd_bus_message_get_bus(message));
    return 0;
}

// Of two texts "key=value".
static int by_key(const void *one, const void *other) {
    const char *a = *(char **)one, *b = *(char **)other;
    for (; *a == *b && *a != '='; a++, b++);
    return (*a == '=' ? 0 : (unsigned char)*a) - (*b == '=' ? 0 : (unsigned char)*b);
}

// Reads a variant, and gives "key=value".
static char *pair(sd_bus_message *message, const char *key) {
    const char *type;
    char *text = NULL;
    union { uint8_t y; int16_t n; uint16_t q; int32_t i; uint32_t u; int64_t x; uint64_t t; double d; int b; char *s; } value;
    check(sd_bus_message_peek_type(message, NULL, &type), NULL);
    if (strlen(type) != 1) {
        check(sd_bus_message_skip(message, "v"), NULL);
        return asprintf(&text, "%s=(%s)", key, type) < 0 ? NULL : text;
    }
    check(sd_bus_message_read(message, "v", type, &value), NULL);
    int length = -1;
    switch (*type) {
        case 'y': length = asprintf(&text, "%s=%u", key, value.y); break;
        case 'n': length = asprintf(&text, "%s=%d", key, value.n); break;
        case 'q': length = asprintf(&text, "%s=%u", key, value.q); break;
        case 'i': length = asprintf(&text, "%s=%d", key, value.i); break;
        case 'u': length = asprintf(&text, "%s=%u", key, value.u); break;
        case 'x': length = asprintf(&text, "%s=%lld", key, (long long)value.x); break;
        case 't': length = asprintf(&text, "%s=%llu", key, (unsigned long long)value.t); break;
        case 'd': length = asprintf(&text, "%s=%g", key, value.d); break;
        case 'b': length = asprintf(&text, "%s=%s", key, value.b ? "true" : "false"); break;
        case 's': length = asprintf(&text, "%s=%s", key, value.s); break;
    }
    return length < 0 ? NULL : text;
}

// The signals are addressed to us; of those that others than the service send, none is believed.
static int received(sd_bus_message *message, void *data, sd_bus_error *error) {
    if (strcmp(sd_bus_message_get_sender(message), owner) != 0) return 0;
    if (sd_bus_message_is_signal(message, CENTER, "Dropped") > 0) {
        uint64_t count;
        const char *reason;
        check(sd_bus_message_read(message, "t", &count), NULL);
        check(sd_bus_message_skip(message, "at"), NULL);
        check(sd_bus_message_read(message, "s", &reason), NULL);
        printf("lost %llu (%s)\n", (unsigned long long)count, reason);
    } else if (sd_bus_message_is_signal(message, CENTER, "Notification") > 0) {
        const char *of, *object, *key;
        char **pairs = NULL;
        size_t count = 0;
        check(sd_bus_message_read(message, "ss", &of, &object), NULL);
        check(sd_bus_message_enter_container(message, 'a', "{sv}"), NULL);
        while (sd_bus_message_enter_container(message, 'e', "sv") > 0) {
            check(sd_bus_message_read(message, "s", &key), NULL);
            pairs = realloc(pairs, (count + 1) * sizeof *pairs);
            pairs[count++] = pair(message, key);
            check(sd_bus_message_exit_container(message), NULL);
        }
        if (count > 0) qsort(pairs, count, sizeof *pairs, by_key);
        printf("%s %s", of, object);
        for (size_t i = 0; i < count; free(pairs[i++])) printf(" %s", pairs[i]);
        printf("\n");
        free(pairs);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) name = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    sd_bus *bus;
    check(sd_bus_open_user(&bus), NULL);
    // No match rule is needed for what is addressed to us.
    check(sd_bus_add_filter(bus, NULL, received, NULL), NULL);
    check(sd_bus_add_match(bus, NULL, "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',"
                           "member='NameOwnerChanged',arg0='" CENTER "'", owner_changed, NULL), NULL);
    observe(bus);
    for (int result;;) {
        check(result = sd_bus_process(bus, NULL), NULL);
        if (result == 0) check(sd_bus_wait(bus, UINT64_MAX), NULL);
    }
}
