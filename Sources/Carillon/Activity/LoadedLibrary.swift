// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A shared library that this process has already loaded, in which functions are found by name. It never loads a
/// library.
struct LoadedLibrary: @unchecked Sendable {
    // Sendable: a handle of the dynamic linker, which is thread-safe; never closed.
    private let handle: UnsafeMutableRawPointer

    /// - Parameter names: the sonames, of which the first loaded one is used. The program may be linked with the
    ///   library, or may have loaded it at run time, as language bindings do.
    init?(_ names: String...) {
        for name in names {
            if let handle = dlopen(name, RTLD_NOLOAD | RTLD_LAZY) {
                self.handle = handle
                return
            }
        }
        return nil
    }

    /// Returns a function of the library or of its dependencies.
    ///
    /// - Parameter type: the type of the function, as `@convention(c)`. The caller is responsible for its correctness.
    func function<Function>(_ name: String, as type: Function.Type = Function.self) -> Function? {
        dlsym(handle, name).map { unsafeBitCast($0, to: type) }
    }
}
