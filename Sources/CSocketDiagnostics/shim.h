#ifndef CARILLON_CSOCKETDIAGNOSTICS_SHIM_H
#define CARILLON_CSOCKETDIAGNOSTICS_SHIM_H

/* sock_diag(7): what the kernel tells about unix sockets, as `ss -x` shows it. Headers only. */
#include <sys/socket.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>

#endif
