// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A user that programs are started as, which only root can.
public struct OtherUser: Hashable, Sendable {
    public let name: String
    public let id: uid_t
    let group: gid_t

    /// - Parameter name: of a user of this machine.
    /// - Throws: when there is none.
    public init(_ name: String) throws {
        guard let entry = getpwnam(name) else { throw SystemError("getpwnam \(name)", code: ENOENT) }
        self.name = name
        id = entry.pointee.pw_uid
        group = entry.pointee.pw_gid
    }

    /// Why nobody can be another user here; nil when somebody can.
    public static var reasonUnavailable: String? {
        guard geteuid() == 0 else { return "only root can start programs as other users" }
        return Command.find("setpriv") == nil ? "setpriv is not installed" : nil
    }

    /// The command line that runs a program as a user; nil for this one.
    public static func command(
        _ program: String, _ arguments: [String], of user: OtherUser?
    ) -> (program: String, arguments: [String]) {
        guard let user else { return (program, arguments) }
        let identity = ["--reuid", "\(user.id)", "--regid", "\(user.group)", "--clear-groups"]
        return ("setpriv", identity + ["--", program] + arguments)
    }

    /// Gives a directory, and all that is in it, to the user.
    public func own(_ directory: TemporaryDirectory) throws {
        let below = FileManager.default.enumerator(atPath: directory.path)?.compactMap { $0 as? String } ?? []
        for path in [directory.path] + below.map(directory.entry) {
            guard chown(path, id, group) == 0 else { throw SystemError("chown \(path)") }
        }
    }

    /// A copy of a file that every user can read, and run where it is a program.
    ///
    /// Another process writes it. A program that this one had open for writing could not be started while a process that
    /// was forked meanwhile, for another test, had the descriptor as well.
    public static func copy(_ path: String, to directory: TemporaryDirectory) throws -> String {
        let copy = directory.entry(URL(fileURLWithPath: path).lastPathComponent)
        if !FileManager.default.fileExists(atPath: copy) {
            let result = try Command.run("install", ["--mode=755", path, copy])
            guard result.exitCode == 0 else { throw SystemError("install \(copy): \(result)", code: EIO) }
        }
        return copy
    }
}
