#ifndef CARILLON_CDBUS_SHIM_H
#define CARILLON_CDBUS_SHIM_H

#include <dbus/dbus.h>

// Macros with casts or string concatenation that Swift does not import.
static const int cdbus_timeout_infinite = DBUS_TIMEOUT_INFINITE;
static const int cdbus_timeout_use_default = DBUS_TIMEOUT_USE_DEFAULT;

#endif
