// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CGLIB_SHIM_H
#define CARILLON_CGLIB_SHIM_H

#include <glib.h>
#include <glib-unix.h>
#include <sys/syscall.h>
#include <unistd.h>

/* gettid() is hidden from programs that do not define _GNU_SOURCE, and syscall() is variadic. A thread asks the kernel
   once. */
static inline int carillon_is_main_thread(void)
{
    static __thread signed char answer;
    if (answer == 0) answer = syscall(SYS_gettid) == getpid() ? 1 : -1;
    return answer > 0;
}

/* A file that lies in memory and has no name; memfd_create() is hidden like gettid(). 1 is MFD_CLOEXEC. */
static inline int carillon_memory_file(void)
{
    return syscall(SYS_memfd_create, "carillon", 1U);
}

/* Tells threads apart, in the order in which they ask. */
static inline unsigned carillon_thread_number(void)
{
    static unsigned last;
    static __thread unsigned number;
    if (number == 0) number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return number;
}

/* For the thread sanitizer, where a program has it: that what was done before a release on some thread is seen behind an acquire
   of the same address on another. Elsewhere there are no such functions. */
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

static inline void carillon_tsan_acquire(const void *address)
{
    if (__tsan_acquire) __tsan_acquire((void *)address);
}

static inline void carillon_tsan_release(const void *address)
{
    if (__tsan_release) __tsan_release((void *)address);
}

#endif
