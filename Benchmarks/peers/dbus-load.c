// SPDX-License-Identifier: Apache-2.0
/* A load on a message bus, with libdbus: raw broadcasts, or through the notification center.
 *
 *   dbus-load raw|carillon observe|post NAME …
 *
 * The poster waits for nothing, but behind its last post until the bus or the service has taken them all. */
#include <dbus/dbus.h>

#include "load.h"

#define CENTER "org.carillon.NotificationCenter1"
#define CENTER_PATH "/org/carillon/NotificationCenter1"
#define RAW "org.carillon.Load"
#define RAW_PATH "/org/carillon/Load"

static DBusConnection *bus;
static struct load load;
static bool raw;

static void append_entry(DBusMessageIter *entries, const char *key, int type, const void *value, int count) {
    DBusMessageIter entry, variant, array;
    const char *signature = type == DBUS_TYPE_ARRAY ? "ay" : "x";
    dbus_message_iter_open_container(entries, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &key);
    dbus_message_iter_open_container(&entry, DBUS_TYPE_VARIANT, signature, &variant);
    if (type == DBUS_TYPE_ARRAY) {
        dbus_message_iter_open_container(&variant, DBUS_TYPE_ARRAY, "y", &array);
        dbus_message_iter_append_fixed_array(&array, DBUS_TYPE_BYTE, &value, count);
        dbus_message_iter_close_container(&variant, &array);
    } else {
        dbus_message_iter_append_basic(&variant, type, value);
    }
    dbus_message_iter_close_container(&entry, &variant);
    dbus_message_iter_close_container(entries, &entry);
}

static DBusMessage *make_post(const char *name, int64_t number) {
    static const char *object = "";
    static unsigned char *data;
    if (!data) data = memset(malloc((size_t)load.size + 1), 'B', (size_t)load.size);
    int64_t now = load_now();
    DBusMessage *message = raw ? dbus_message_new_signal(RAW_PATH, RAW, "Notification")
                               : dbus_message_new_method_call(CENTER, CENTER_PATH, CENTER, "Post");
    DBusMessageIter arguments, entries;
    dbus_message_iter_init_append(message, &arguments);
    dbus_message_iter_append_basic(&arguments, DBUS_TYPE_STRING, &name);
    dbus_message_iter_append_basic(&arguments, DBUS_TYPE_STRING, &object);
    dbus_message_iter_open_container(&arguments, DBUS_TYPE_ARRAY, "{sv}", &entries);
    append_entry(&entries, "number", DBUS_TYPE_INT64, &number, 1);
    append_entry(&entries, "time", DBUS_TYPE_INT64, &now, 1);
    append_entry(&entries, "data", DBUS_TYPE_ARRAY, data, (int)load.size);
    dbus_message_iter_close_container(&arguments, &entries);
    if (!raw) {
        dbus_message_iter_open_container(&arguments, DBUS_TYPE_ARRAY, "{sv}", &entries);
        dbus_message_iter_close_container(&arguments, &entries);
        dbus_message_set_no_reply(message, TRUE);
    }
    return message;
}

static void call_and_wait(DBusMessage *message) {
    DBusError error = DBUS_ERROR_INIT;
    dbus_message_set_no_reply(message, FALSE);
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, message, DBUS_TIMEOUT_INFINITE, &error);
    if (!reply) load_fail(error.message);
    dbus_message_unref(reply);
    dbus_message_unref(message);
}

static void post(void) {
    int64_t cpu = load_cpu(), start = load_now();
    for (long number = 0; number < load.count; number++) {
        load_pace(&load, start, number);
        DBusMessage *message = make_post(load.name, number);
        if (!dbus_connection_send(bus, message, NULL)) load_fail("no memory");
        dbus_message_unref(message);
        if (load.rate > 0) dbus_connection_flush(bus);
    }
    DBusMessage *end = make_post(load.end, load.count);
    if (raw) {
        dbus_connection_send(bus, end, NULL);
        dbus_message_unref(end);
        end = dbus_message_new_method_call(DBUS_SERVICE_DBUS, DBUS_PATH_DBUS, DBUS_INTERFACE_PEER, "Ping");
    }
    call_and_wait(end);
    load_posted(&load, start, cpu);
}

/* The next of the entries' values, an x. */
static int64_t read_integer(DBusMessageIter *entries) {
    DBusMessageIter entry, value;
    int64_t result = -1;
    if (dbus_message_iter_get_arg_type(entries) != DBUS_TYPE_DICT_ENTRY) return result;
    dbus_message_iter_recurse(entries, &entry);
    dbus_message_iter_next(&entry);
    dbus_message_iter_recurse(&entry, &value);
    if (dbus_message_iter_get_arg_type(&value) == DBUS_TYPE_INT64) dbus_message_iter_get_basic(&value, &result);
    dbus_message_iter_next(entries);
    return result;
}

static DBusHandlerResult arrived(DBusConnection *connection, DBusMessage *message, void *data) {
    (void)connection, (void)data;
    if (dbus_message_is_signal(message, DBUS_INTERFACE_LOCAL, "Disconnected")) load_fail("the bus ended it");
    if (!dbus_message_is_signal(message, raw ? RAW : CENTER, "Notification"))
        return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    DBusMessageIter arguments, entries;
    const char *name;
    dbus_message_iter_init(message, &arguments);
    dbus_message_iter_get_basic(&arguments, &name);
    dbus_message_iter_next(&arguments);
    dbus_message_iter_next(&arguments);
    dbus_message_iter_recurse(&arguments, &entries);
    int64_t number = read_integer(&entries), posted = read_integer(&entries);
    if (strcmp(name, load.name) == 0) load_seen(number, posted);
    else if (strcmp(name, load.end) == 0) load_report();
    return DBUS_HANDLER_RESULT_HANDLED;
}

/* Registers for a name; every so often it waits, so that thousands are no flood. */
static void add(const char *name, bool waits) {
    DBusError error = DBUS_ERROR_INIT;
    if (raw) {
        char rule[512];
        snprintf(rule, sizeof rule, "type='signal',interface='" RAW "',member='Notification',arg0='%s'", name);
        dbus_bus_add_match(bus, rule, waits ? &error : NULL);
        if (dbus_error_is_set(&error)) load_fail(error.message);
        return;
    }
    const char *object = "";
    DBusMessageIter arguments, entries;
    DBusMessage *message = dbus_message_new_method_call(CENTER, CENTER_PATH, CENTER, "AddObserver");
    dbus_message_iter_init_append(message, &arguments);
    dbus_message_iter_append_basic(&arguments, DBUS_TYPE_STRING, &name);
    dbus_message_iter_append_basic(&arguments, DBUS_TYPE_STRING, &object);
    dbus_message_iter_open_container(&arguments, DBUS_TYPE_ARRAY, "{sv}", &entries);
    dbus_message_iter_close_container(&arguments, &entries);
    if (waits) return call_and_wait(message);
    dbus_message_set_no_reply(message, TRUE);
    dbus_connection_send(bus, message, NULL);
    dbus_message_unref(message);
}

static void observe(void) {
    dbus_connection_add_filter(bus, arrived, NULL, NULL);
    char other[300];
    for (long i = 0; i < load.others; i++) {
        snprintf(other, sizeof other, "%s.other%ld", load.name, i);
        add(other, i % 256 == 255);
    }
    add(load.name, true);
    add(load.end, true);
    load_ready();
    while (dbus_connection_read_write_dispatch(bus, -1)) {
    }
}

int main(int argc, char **argv) {
    if (argc < 2) load_fail("expected raw or carillon");
    raw = strcmp(argv[1], "raw") == 0;
    load = load_options(argc - 1, argv + 1);
    DBusError error = DBUS_ERROR_INIT;
    bus = dbus_bus_get_private(DBUS_BUS_SESSION, &error);
    if (!bus) load_fail(error.message);
    dbus_connection_set_exit_on_disconnect(bus, FALSE);
    if (load.observes) observe();
    else post();
    return 0;
}
