// SPDX-License-Identifier: Apache-2.0
// Prints notifications: observe [NAME]
#include <stdio.h>

#include "center.h"

#define CENTER "org.carillon.NotificationCenter1"

static const char *name = "com.example.Saved";

static void fail(const GError *error) {
    g_printerr("%s\n", error->message);
    exit(1);
}

// Calls have the bus start the service if there is none.
static void observe(CarillonNotificationCenter1 *center) {
    GVariant *options = g_variant_new_parsed("{'retained': <true>}");
    GError *error = NULL;
    // A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    if (!carillon_notification_center1_call_remove_observers_sync(center, "", "", NULL, NULL, &error) ||
        !carillon_notification_center1_call_add_observer_sync(center, name, "", options, NULL, NULL, &error))
        fail(error);
    printf("observing %s\n", name);
}

// There is another service after a restart, or there is none.
static void owner_changed(GDBusProxy *center) {
    g_autofree char *owner = g_dbus_proxy_get_name_owner(center);
    if (owner != NULL)
        observe(CARILLON_NOTIFICATION_CENTER1(center));
    else
        g_dbus_connection_call(g_dbus_proxy_get_connection(center), "org.freedesktop.DBus", "/org/freedesktop/DBus",
                               "org.freedesktop.DBus", "StartServiceByName", g_variant_new("(su)", CENTER, 0), NULL,
                               G_DBUS_CALL_FLAGS_NONE, -1, NULL, NULL, NULL);
}

static int by_text(const void *one, const void *other) { return strcmp(*(char **)one, *(char **)other); }

static void notification(CarillonNotificationCenter1 *center, const char *of, const char *object, GVariant *user_info) {
    g_autoptr(GPtrArray) keys = g_ptr_array_new();
    GVariantIter entries;
    const char *key;
    g_variant_iter_init(&entries, user_info);
    while (g_variant_iter_next(&entries, "{&sv}", &key, NULL)) g_ptr_array_add(keys, (char *)key);
    g_ptr_array_sort(keys, by_text);
    printf("%s %s", of, object);
    for (guint i = 0; i < keys->len; i++) {
        g_autoptr(GVariant) value = g_variant_lookup_value(user_info, keys->pdata[i], NULL);
        g_autofree char *text = g_variant_is_of_type(value, G_VARIANT_TYPE_STRING) ? g_variant_dup_string(value, NULL)
                                                                                  : g_variant_print(value, FALSE);
        printf(" %s=%s", (char *)keys->pdata[i], text);
    }
    printf("\n");
}

static void dropped(CarillonNotificationCenter1 *center, guint64 count, GVariant *observers, const char *reason) {
    printf("lost %" G_GUINT64_FORMAT " (%s)\n", count, reason);
}

int main(int argc, char **argv) {
    if (argc > 1) name = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    GError *error = NULL;
    // It has the bus start the service, and hears only signals of the owner of the name, also when that changes.
    CarillonNotificationCenter1 *center = carillon_notification_center1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_DO_NOT_LOAD_PROPERTIES, CENTER, "/org/carillon/NotificationCenter1", NULL,
        &error);
    if (center == NULL) fail(error);
    g_signal_connect(center, "notification", G_CALLBACK(notification), NULL);
    g_signal_connect(center, "dropped", G_CALLBACK(dropped), NULL);
    g_signal_connect(center, "notify::g-name-owner", G_CALLBACK(owner_changed), NULL);
    observe(center);
    g_main_loop_run(g_main_loop_new(NULL, FALSE));
}
