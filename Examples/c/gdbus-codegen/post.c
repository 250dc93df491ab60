// SPDX-License-Identifier: Apache-2.0
// Posts a notification: post [OBJECT [BYTES]]
#include "center.h"

int main(int argc, char **argv) {
    const char *object = argc > 1 ? argv[1] : "report.txt";
    gint64 bytes = argc > 2 ? g_ascii_strtoll(argv[2], NULL, 10) : 4711;
    GVariantDict user_info;
    g_variant_dict_init(&user_info, NULL);
    g_variant_dict_insert(&user_info, "bytes", "x", bytes);
    g_variant_dict_insert(&user_info, "clean", "b", TRUE);
    g_variant_dict_insert(&user_info, "title", "s", "Annual report — 2026");
    // Kept as the value of this name and object, for observers that come later.
    GVariant *options = g_variant_new_parsed("{'retain': <true>}");

    g_autoptr(GError) error = NULL;
    guint reached;
    CarillonNotificationCenter1 *center = carillon_notification_center1_proxy_new_for_bus_sync(
        G_BUS_TYPE_SESSION, G_DBUS_PROXY_FLAGS_DO_NOT_LOAD_PROPERTIES, "org.carillon.NotificationCenter1",
        "/org/carillon/NotificationCenter1", NULL, &error);
    if (center == NULL || !carillon_notification_center1_call_post_sync(center, "com.example.Saved", object,
                              g_variant_dict_end(&user_info), options, &reached, NULL, &error)) {
        g_printerr("%s\n", error->message);  // "GDBus.Error:", the name of the error, and its message
        return 1;
    }
    g_print("reached %u\n", reached);
}
