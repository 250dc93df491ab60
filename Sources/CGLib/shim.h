#ifndef CARILLON_CGLIB_SHIM_H
#define CARILLON_CGLIB_SHIM_H

#include <glib.h>
#include <glib-unix.h>

#endif
