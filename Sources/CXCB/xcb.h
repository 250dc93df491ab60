#ifndef CARILLON_CXCB_H
#define CARILLON_CXCB_H

// The part of libxcb's and libxcb-res's binary interface that the service uses. It is declared here, and found with
// dlopen while the service runs, so that nothing of X is needed to build it or to start it. Layouts are those of the X
// protocol and of the libraries' stable ABI (libxcb.so.1, libxcb-res.so.0).

#include <stdint.h>

typedef struct {
    unsigned int sequence;
} cxcb_cookie;

// Of xcb_screen_t only the beginning is read.
typedef struct {
    uint32_t root;
} cxcb_screen;

typedef struct {
    cxcb_screen *data;
    int rem;
    int index;
} cxcb_screen_iterator;

typedef struct {
    uint8_t response_type;
    uint8_t pad0;
    uint16_t sequence;
    // Of PropertyNotify: the window. Of DestroyNotify: where it was asked for.
    uint32_t window;
    // Of PropertyNotify: the property. Of DestroyNotify: the window.
    uint32_t detail;
    uint32_t pad[5];
    uint32_t full_sequence;
} cxcb_event;

typedef struct {
    uint8_t response_type;
    uint8_t pad0;
    uint16_t sequence;
    uint32_t length;
    uint32_t atom;
} cxcb_intern_atom_reply;

typedef struct {
    uint8_t response_type;
    uint8_t pad0;
    uint16_t sequence;
    uint32_t length;
    uint8_t present;
} cxcb_query_extension_reply;

// The value follows.
typedef struct {
    uint8_t response_type;
    uint8_t format;
    uint16_t sequence;
    uint32_t length;
    uint32_t type;
    uint32_t bytes_after;
    uint32_t value_len;
    uint8_t pad0[12];
} cxcb_get_property_reply;

typedef struct {
    uint8_t response_type;
    uint8_t pad0;
    uint16_t sequence;
    uint32_t length;
    uint16_t server_major;
    uint16_t server_minor;
} cxcb_res_query_version_reply;

typedef struct {
    uint32_t client;
    uint32_t mask;
} cxcb_res_client_id_spec;

// Values follow: each a spec, its length in bytes, and so many bytes.
typedef struct {
    uint8_t response_type;
    uint8_t pad0;
    uint16_t sequence;
    uint32_t length;
    uint32_t num_ids;
    uint8_t pad1[20];
} cxcb_res_query_client_ids_reply;

#endif
