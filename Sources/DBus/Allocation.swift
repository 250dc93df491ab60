// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// libdbus answers a failed allocation with NULL or FALSE. There is no memory left to do anything about it with.
func allocated(_ pointer: OpaquePointer?) -> OpaquePointer {
    guard let pointer else { fatalError("out of memory in libdbus") }
    return pointer
}

func check(_ success: dbus_bool_t) {
    guard success != 0 else { fatalError("out of memory in libdbus") }
}
