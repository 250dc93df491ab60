// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CSYSTEM_SHIM_H
#define CARILLON_CSYSTEM_SHIM_H

/* Headers of the system that Swift's own module of it leaves out. Headers only. */

/* sock_diag(7): what the kernel tells about unix sockets, as `ss -x` shows it. */
#include <sys/socket.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>

/* malloc_trim(3), where the C library has it. */
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#endif
