// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CDBUS_SHIM_H
#define CARILLON_CDBUS_SHIM_H

#include <dbus/dbus.h>

#endif
