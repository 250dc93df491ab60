// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// Converts an allocation result of libdbus, NULL on failure, to a pointer. A failure ends the process, since it leaves
/// no memory for recovery.
func allocated(_ pointer: OpaquePointer?) -> OpaquePointer {
    guard let pointer else { fatalError("out of memory in libdbus") }
    return pointer
}

/// Checks the success value of a libdbus function that can only fail for lack of memory. A failure ends the process.
func check(_ success: dbus_bool_t) {
    guard success != 0 else { fatalError("out of memory in libdbus") }
}
