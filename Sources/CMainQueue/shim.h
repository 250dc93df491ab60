// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CMAINQUEUE_SHIM_H
#define CARILLON_CMAINQUEUE_SHIM_H

/* What libdispatch exports for run loops that serve the main queue. CoreFoundation's does the same with them; no header
   of the toolchain declares them. */

/* An eventfd that is readable while the main queue has work. */
int _dispatch_get_main_queue_handle_4CF(void);

/* Runs what is in the main queue. Only on the main thread, and not after dispatch_main(). */
void _dispatch_main_queue_callback_4CF(void *message);

/* What Swift's runtime exports, and declares in no header of the toolchain either: whether the deinit of an object has
   begun. A weak reference tells the same, and makes each later retain and release of the object slow. */
_Bool swift_isDeallocating(void *object);

#endif
