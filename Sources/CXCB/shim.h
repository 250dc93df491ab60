// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CXCB_SHIM_H
#define CARILLON_CXCB_SHIM_H

#include <xcb/xcb.h>
#include <xcb/xcbext.h>
#include <xcb/res.h>

// The types of the functions that are looked up by name, as the headers declare them. To call one directly would link
// the library to the service.
#define CXCB_FUNCTION(name) typedef __typeof__(name) *name##_function;

CXCB_FUNCTION(xcb_connect)
CXCB_FUNCTION(xcb_disconnect)
CXCB_FUNCTION(xcb_connection_has_error)
CXCB_FUNCTION(xcb_get_file_descriptor)
CXCB_FUNCTION(xcb_flush)
CXCB_FUNCTION(xcb_get_setup)
CXCB_FUNCTION(xcb_setup_roots_iterator)
CXCB_FUNCTION(xcb_screen_next)
CXCB_FUNCTION(xcb_intern_atom)
CXCB_FUNCTION(xcb_change_window_attributes)
CXCB_FUNCTION(xcb_get_property)
CXCB_FUNCTION(xcb_get_window_attributes)
CXCB_FUNCTION(xcb_query_tree)
CXCB_FUNCTION(xcb_query_extension)
CXCB_FUNCTION(xcb_prefetch_extension_data)
CXCB_FUNCTION(xcb_get_extension_data)
CXCB_FUNCTION(xcb_poll_for_event)
CXCB_FUNCTION(xcb_poll_for_reply)
CXCB_FUNCTION(xcb_res_query_version)
CXCB_FUNCTION(xcb_res_query_client_ids)

#undef CXCB_FUNCTION

#endif
