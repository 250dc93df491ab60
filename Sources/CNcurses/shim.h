/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CARILLON_CNCURSES_SHIM_H
#define CARILLON_CNCURSES_SHIM_H

/* Functions, not macros: those are what can be found by name. */
#define NCURSES_NOMACROS 1
/* A window is a pointer, as it is by default from ncurses 6.5 on. */
#define NCURSES_OPAQUE 1
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
CNCURSES_FUNCTION(keypad)
CNCURSES_FUNCTION(nodelay)
CNCURSES_FUNCTION(set_escdelay)
CNCURSES_FUNCTION(curs_set)
CNCURSES_FUNCTION(has_colors)
CNCURSES_FUNCTION(start_color)
CNCURSES_FUNCTION(use_default_colors)
CNCURSES_FUNCTION(init_pair)
CNCURSES_FUNCTION(wgetch)
CNCURSES_FUNCTION(werase)
CNCURSES_FUNCTION(wmove)
CNCURSES_FUNCTION(wattr_set)
CNCURSES_FUNCTION(waddnstr)
CNCURSES_FUNCTION(clearok)
CNCURSES_FUNCTION(wrefresh)
CNCURSES_FUNCTION(resizeterm)

#undef CNCURSES_FUNCTION

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
