#ifndef CARILLON_CGLIB_SHIM_H
#define CARILLON_CGLIB_SHIM_H

#include <glib.h>
#include <glib-unix.h>
#include <sys/syscall.h>
#include <unistd.h>

/* gettid() is hidden from programs that do not define _GNU_SOURCE, and syscall() is variadic. */
static inline int carillon_is_main_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

#endif
