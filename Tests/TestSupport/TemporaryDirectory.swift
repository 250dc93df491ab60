// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A directory of its own that is removed, with all that is in it, when nothing refers to it any more.
///
/// It is made in `/tmp` and has a short name, because the path of a Unix socket in it must fit into 107 bytes.
public final class TemporaryDirectory: Sendable {
    /// The absolute path.
    public let path: String

    public init() throws {
        var template = Array("/tmp/carillon-XXXXXX".utf8CString)
        path = try template.withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress, let made = mkdtemp(base) else {
                throw SystemError("mkdtemp")
            }
            return String(cString: made)
        }
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    /// The path of an entry of this directory. Creates nothing.
    public func entry(_ name: String) -> String {
        "\(path)/\(name)"
    }

    /// Creates a subdirectory that only this user can enter, as XDG_RUNTIME_DIR must be.
    ///
    /// - Returns: its path.
    @discardableResult
    public func createSubdirectory(_ name: String) throws -> String {
        try FileManager.default.createDirectory(
            atPath: entry(name), withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        return entry(name)
    }

    /// Writes a file, and the directories that it is in. Whoever reads it finds the whole of the old or of the new one.
    ///
    /// - Returns: its path.
    @discardableResult
    public func write(_ content: String, to name: String) throws -> String {
        let url = URL(fileURLWithPath: entry(name))
        try FileManager.default.createDirectory(
            at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(content.utf8).write(to: url, options: .atomic)
        return url.path
    }
}
