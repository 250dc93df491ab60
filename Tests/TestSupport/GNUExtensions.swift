// SPDX-License-Identifier: Apache-2.0
import Glibc

/// Functions of the C library that the `Glibc` module leaves out, because its headers show them only to programs that
/// define `_GNU_SOURCE`. They are looked up by name.
enum GNUExtensions {
    /// `pipe2(2)`: makes a pipe whose ends are close-on-exec from the start.
    static func pipe2(_ ends: UnsafeMutablePointer<Int32>, _ flags: Int32) -> Int32 {
        guard let pipe2Function else {
            errno = ENOSYS
            return -1
        }
        return pipe2Function(ends, flags)
    }

    /// `posix_spawn_file_actions_addclosefrom_np(3)`: closes, in the child, every descriptor from `lowest` on. Does
    /// nothing where the C library is older than glibc 2.34; descriptors that are close-on-exec are closed anyway.
    static func addCloseFrom(_ lowest: Int32, to actions: inout posix_spawn_file_actions_t) {
        _ = addCloseFromFunction?(&actions, lowest)
    }

    private typealias Pipe2 = @convention(c) (UnsafeMutablePointer<Int32>, Int32) -> Int32
    private static let pipe2Function = function("pipe2", as: Pipe2.self)

    private typealias AddCloseFrom = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
    private static let addCloseFromFunction = function(
        "posix_spawn_file_actions_addclosefrom_np", as: AddCloseFrom.self)

    private static func function<Function>(_ name: String, as type: Function.Type) -> Function? {
        dlsym(nil, name).map { unsafeBitCast($0, to: type) }
    }
}
