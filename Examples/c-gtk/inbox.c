// SPDX-License-Identifier: Apache-2.0
//
// An application that says by itself when it is active, in C with GTK (package libgtk-3-dev):
//
//     cc -o inbox inbox.c $(pkg-config --cflags --libs gtk+-3.0)
//     ./inbox [--automatic]
//
// Where the desktop tells the service which application is active, nothing of this is needed: see --automatic, and
// docs/activity.md. Prints a line for everything that it hears.

#include <gtk/gtk.h>

#define NAME "org.carillon.NotificationCenter1"
#define PATH "/org/carillon/NotificationCenter1"

static GDBusConnection *bus;
static gboolean suspended = FALSE;
static guint timer = 0;

// Nothing here waits for an answer.
static void call(const char *method, GVariant *arguments)
{
    g_dbus_connection_call(bus, NAME, PATH, NAME, method, arguments, NULL, G_DBUS_CALL_FLAGS_NONE, -1, NULL, NULL,
                           NULL);
}

static void set_suspended(gboolean value)
{
    if (value == suspended)
        return;
    suspended = value;
    call("SetSuspended", g_variant_new("(b)", value));
}

static gboolean is_any_window_active(void)
{
    gboolean is_active = FALSE;
    GList *windows = gtk_window_list_toplevels();
    for (GList *each = windows; each != NULL; each = each->next)
        is_active = is_active || gtk_window_is_active(GTK_WINDOW(each->data));
    g_list_free(windows);
    return is_active;
}

static gboolean inactivity_lasted(gpointer data)
{
    (void)data;
    timer = 0;
    set_suspended(TRUE);
    return G_SOURCE_REMOVE;
}

// GTK tells of each window by itself, so that between two windows of one application there is a moment without an
// active one: inactivity counts when it has lasted for 50 ms. To resume is never late.
static void activity_changed(void)
{
    if (timer != 0)
        g_source_remove(timer);
    timer = 0;
    if (is_any_window_active())
        set_suspended(FALSE);
    else
        timer = g_timeout_add(50, inactivity_lasted, NULL);
}

static void received(GDBusConnection *connection, const char *sender, const char *path, const char *interface,
                     const char *signal, GVariant *arguments, gpointer data)
{
    (void)connection, (void)sender, (void)path, (void)interface, (void)data;
    if (g_str_equal(signal, "Notification")) {
        const char *name;
        g_variant_get_child(arguments, 0, "&s", &name);
        g_print("got %s\n", name);
    } else if (g_str_equal(signal, "SuspensionChanged")) {
        gboolean is_suspended;
        const char *cause;
        g_variant_get(arguments, "(b&s)", &is_suspended, &cause);
        g_print("%s %s\n", is_suspended ? "suspended" : "resumed", cause);
    }
}

int main(int argc, char *argv[])
{
    gtk_init(&argc, &argv);
    setvbuf(stdout, NULL, _IOLBF, 0);

    GError *error = NULL;
    bus = g_bus_get_sync(G_BUS_TYPE_SESSION, NULL, &error);
    if (bus == NULL) {
        g_printerr("inbox: %s\n", error->message);
        return 2;
    }
    // Signals of the service are addressed to this connection: no match rule is needed.
    g_dbus_connection_signal_subscribe(bus, NAME, NAME, NULL, PATH, NULL, G_DBUS_SIGNAL_FLAGS_NO_MATCH_RULE, received,
                                       NULL, NULL);
    GVariantBuilder options;
    g_variant_builder_init(&options, G_VARIANT_TYPE_VARDICT);
    g_variant_builder_add(&options, "{sv}", "suspension-behavior", g_variant_new_string("coalesce"));
    call("AddObserver", g_variant_new("(ssa{sv})", "org.example.Mail", "", &options));

    GtkWidget *window = gtk_window_new(GTK_WINDOW_TOPLEVEL);
    gtk_window_set_title(GTK_WINDOW(window), "Inbox");
    g_signal_connect(window, "destroy", gtk_main_quit, NULL);
    if (argc > 1 && g_str_equal(argv[1], "--automatic"))
        call("FollowActivity", NULL);  // which is how every application starts
    else
        g_signal_connect(window, "notify::is-active", G_CALLBACK(activity_changed), NULL);
    gtk_widget_show_all(window);
    gtk_main();
    return 0;
}
