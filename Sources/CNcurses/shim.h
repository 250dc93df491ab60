/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CARILLON_CNCURSES_SHIM_H
#define CARILLON_CNCURSES_SHIM_H

/* Functions, not macros: those are what can be found by name. */
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <stdio.h>

// The types of the functions that are looked up by name, as the header declares them. To call one directly would link
// the library to the command.
#define CNCURSES_FUNCTION(name) typedef __typeof__(name) *name##_function;

CNCURSES_FUNCTION(newterm)
CNCURSES_FUNCTION(endwin)
CNCURSES_FUNCTION(cbreak)
CNCURSES_FUNCTION(noecho)
CNCURSES_FUNCTION(nonl)
CNCURSES_FUNCTION(set_escdelay)
CNCURSES_FUNCTION(curs_set)
CNCURSES_FUNCTION(has_colors)
CNCURSES_FUNCTION(start_color)
CNCURSES_FUNCTION(use_default_colors)
CNCURSES_FUNCTION(init_pair)
CNCURSES_FUNCTION(resizeterm)

#undef CNCURSES_FUNCTION

/* A window is a pointer to nothing that is known: from ncurses 6.5 on the header hides its fields. */
typedef int (*keypad_function)(void *window, bool on);
typedef int (*nodelay_function)(void *window, bool on);
typedef int (*wgetch_function)(void *window);
typedef int (*werase_function)(void *window);
typedef int (*wmove_function)(void *window, int y, int x);
typedef int (*wattr_set_function)(void *window, attr_t attributes, short pair, void *options);
typedef int (*waddnstr_function)(void *window, const char *text, int count);
typedef int (*clearok_function)(void *window, bool on);
typedef int (*wrefresh_function)(void *window);

/* The standard streams are variables, or macros, of each C library's own kind. */
static inline SCREEN *carillon_newterm(newterm_function function)
{
    return function(NULL, stdout, stdin);
}

/* Macros that are casts are not imported. */
static const attr_t carillon_normal = A_NORMAL;
static const attr_t carillon_bold = A_BOLD;
static const attr_t carillon_dim = A_DIM;
static const attr_t carillon_reverse = A_REVERSE;

#endif
