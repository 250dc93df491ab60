// SPDX-License-Identifier: Apache-2.0
//
// A window of GTK 4 (package libgtk-4-dev) that shows what it receives, and what it was told while it was inactive:
//
//     cc -o window gtk4.c $(pkg-config --cflags --libs gtk4)
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
    gtk_box_append(GTK_BOX(lines), line);
    g_print("%s\n", text);
}

int main(int argc, char *argv[])
{
    gtk_init();
    setvbuf(stdout, NULL, _IOLBF, 0);
    GtkWidget *window = gtk_window_new();
    gtk_window_set_title(GTK_WINDOW(window), argc > 1 ? argv[1] : "GTK 4");
    gtk_window_set_default_size(GTK_WINDOW(window), 320, 200);

    lines = gtk_box_new(GTK_ORIENTATION_VERTICAL, 4);
    state = gtk_label_new(NULL);
    gtk_label_set_xalign(GTK_LABEL(state), 0);
    gtk_widget_set_margin_start(lines, 8);
    gtk_widget_set_margin_top(lines, 8);
    gtk_box_append(GTK_BOX(lines), state);
    gtk_window_set_child(GTK_WINDOW(window), lines);
    gtk_window_present(GTK_WINDOW(window));
    observe();
    while (g_list_model_get_n_items(gtk_window_get_toplevels()) > 0)
        g_main_context_iteration(NULL, TRUE);
    return 0;
}
