// SPDX-License-Identifier: Apache-2.0
//
// What gtk3.c, gtk4.c and sdl2.c have in common: an application that observes three names by GDBus, which comes with
// GLib. It need not say when it is active, as the service sees that, and it goes on when the service was away.

#ifndef INBOX_H
#define INBOX_H

#include <gio/gio.h>

#define NAME "org.carillon.NotificationCenter1"
#define PATH "/org/carillon/NotificationCenter1"

// What the window shows; each program has its own.
static void show_state(const char *state, gboolean is_active);
static void show_line(const char *line);

static gboolean is_suspended = FALSE;
static gint64 resumed_at = 0;  // microseconds since 1970

static void show_notification(const char *name, GVariant *user_info, GVariant *details)
{
    const char *text = "";
    gint64 posted_at = 0;
    g_variant_lookup(user_info, "text", "&s", &text);
    g_variant_lookup(details, "time", "x", &posted_at);
    gboolean was_inactive = is_suspended || posted_at < resumed_at;
    char *line = g_strdup_printf("%s: %s%s", name, text, was_inactive ? " (while inactive)" : "");
    show_line(line);
    g_free(line);
}

static void received(GDBusConnection *bus, const char *sender, const char *path, const char *interface,
                     const char *signal, GVariant *arguments, gpointer data)
{
    (void)bus, (void)sender, (void)path, (void)interface, (void)data;
    if (g_str_equal(signal, "Notifications")) {
        GVariantIter *all;
        const char *name;
        GVariant *user_info, *details;
        g_variant_get(arguments, "(a(ssa{sv}atstta{sv}))", &all);
        while (g_variant_iter_loop(all, "(&s&s@a{sv}@at&stt@a{sv})", &name, NULL, &user_info, NULL, NULL, NULL, NULL,
                                   &details))
            show_notification(name, user_info, details);
        g_variant_iter_free(all);
    } else if (g_str_equal(signal, "SuspensionChanged")) {
        gboolean was_suspended = is_suspended;
        g_variant_get_child(arguments, 0, "b", &is_suspended);
        if (is_suspended == was_suspended)
            return;  // Only the cause is another one.
        // What was kept comes behind this, and was posted before it.
        if (!is_suspended)
            resumed_at = g_get_real_time();
        show_state(is_suspended ? "inactive" : "active", !is_suspended);
    } else if (g_str_equal(signal, "Dropped")) {
        show_line("some were lost");
    }
}

// Nothing here waits for an answer: the window never stands still.
static void call(GDBusConnection *bus, const char *method, GVariant *arguments)
{
    g_dbus_connection_call(bus, NAME, PATH, NAME, method, arguments, NULL, G_DBUS_CALL_FLAGS_NONE, -1, NULL, NULL,
                           NULL);
}

static void appeared(GDBusConnection *bus, const char *name, const char *owner, gpointer subscription)
{
    (void)name;
    // Signals of the service are addressed to this connection, so that no match rule is needed.
    *(guint *)subscription = g_dbus_connection_signal_subscribe(
        bus, owner, NAME, NULL, PATH, NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, received, NULL, NULL);
    call(bus, "SetClientOptions", g_variant_new_parsed("({'batches': <true>, 'details': <['time']>},)"));
    // One that was away for a moment knows the observers already.
    call(bus, "RemoveObservers", g_variant_new("(ss)", "", ""));
    call(bus, "AddObserver", g_variant_new_parsed("('News', '', {'suspension-behavior': <'hold'>})"));
    call(bus, "AddObserver", g_variant_new_parsed("('Level', '', {'suspension-behavior': <'coalesce'>})"));
    call(bus, "AddObserver", g_variant_new_parsed("('Alarm', '', {'suspension-behavior': <'deliver-immediately'>})"));
    is_suspended = FALSE;
    show_state("active", TRUE);
}

static void vanished(GDBusConnection *bus, const char *name, gpointer subscription)
{
    show_state("no notification center", FALSE);
    if (bus == NULL || *(guint *)subscription == 0)
        return;
    g_dbus_connection_signal_unsubscribe(bus, *(guint *)subscription);
    *(guint *)subscription = 0;
    g_dbus_connection_call(bus, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                           "StartServiceByName", g_variant_new("(su)", name, 0), NULL, G_DBUS_CALL_FLAGS_NONE, -1,
                           NULL, NULL, NULL);
}

static void observe(void)
{
    static guint subscription = 0;
    g_bus_watch_name(G_BUS_TYPE_SESSION, NAME, G_BUS_NAME_WATCHER_FLAGS_AUTO_START, appeared, vanished,
                     &subscription, NULL);
}

#endif
