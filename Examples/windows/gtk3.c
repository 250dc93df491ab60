// SPDX-License-Identifier: Apache-2.0
//
// A window of GTK 3 (package libgtk-3-dev) that shows what it receives, and what it was told while it was inactive:
//
//     cc -o window gtk3.c $(pkg-config --cflags --libs gtk+-3.0)
//     ./window & carillon post News text="it rains"

#include <gtk/gtk.h>

#include "inbox.h"

static GtkWidget *state, *lines;

static void show_state(const char *text, gboolean is_active)
{
    char *markup = g_markup_printf_escaped("<span size='large' weight='bold' color='%s'>%s</span>",
                                           is_active ? "#1a7f37" : "#6e7781", text);
    gtk_label_set_markup(GTK_LABEL(state), markup);
    g_free(markup);
    g_print("%s\n", text);
}

static void show_line(const char *text)
{
    GtkWidget *line = gtk_label_new(text);
    gtk_label_set_xalign(GTK_LABEL(line), 0);
    gtk_box_pack_start(GTK_BOX(lines), line, FALSE, FALSE, 0);
    gtk_widget_show(line);
    g_print("%s\n", text);
}

int main(int argc, char *argv[])
{
    gtk_init(&argc, &argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    GtkWidget *window = gtk_window_new(GTK_WINDOW_TOPLEVEL);
    gtk_window_set_title(GTK_WINDOW(window), argc > 1 ? argv[1] : "GTK 3");
    gtk_window_set_default_size(GTK_WINDOW(window), 320, 200);
    g_signal_connect(window, "destroy", gtk_main_quit, NULL);

    lines = gtk_box_new(GTK_ORIENTATION_VERTICAL, 4);
    state = gtk_label_new(NULL);
    gtk_label_set_xalign(GTK_LABEL(state), 0);
    gtk_container_set_border_width(GTK_CONTAINER(lines), 8);
    gtk_box_pack_start(GTK_BOX(lines), state, FALSE, FALSE, 0);
    gtk_container_add(GTK_CONTAINER(window), lines);
    gtk_widget_show_all(window);
    observe();
    gtk_main();
    return 0;
}
