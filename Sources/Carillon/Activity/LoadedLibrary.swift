// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A library that this process has loaded already, or has not: nothing is loaded on its behalf.
struct LoadedLibrary: @unchecked Sendable {
    // Sendable: a handle of the dynamic linker, which is thread-safe; never closed.
    private let handle: UnsafeMutableRawPointer

    /// - Parameter names: sonames, of which the first that is loaded counts. A program that was linked with the library,
    ///   and one that loaded it at run time, as language bindings do, are treated the same.
    init?(_ names: String...) {
        for name in names {
            if let handle = dlopen(name, RTLD_NOLOAD | RTLD_LAZY) {
                self.handle = handle
                return
            }
        }
        return nil
    }

    /// A function of the library, or of one that it needs.
    ///
    /// - Parameter type: its type, as `@convention(c)`. The caller answers for it.
    func function<Function>(_ name: String, as type: Function.Type = Function.self) -> Function? {
        dlsym(handle, name).map { unsafeBitCast($0, to: type) }
    }
}
