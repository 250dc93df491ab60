// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// What the kernel says about how a process runs.
public enum ProcessState {
    /// Whether SIGSTOP has taken effect: no thread of the process runs.
    ///
    /// - Throws: when there is no such process.
    public static func isStopped(_ pid: pid_t) throws -> Bool {
        try states(of: pid).allSatisfy { $0 == "T" }
    }

    /// Whether all threads of a process wait for something. One that has something to do and no processor for it does
    /// not: it is runnable.
    ///
    /// - Throws: when there is no such process.
    public static func isAsleep(_ pid: pid_t) throws -> Bool {
        try states(of: pid).allSatisfy { $0 == "S" }
    }

    /// Stops a process, and returns when it has stopped; to send the signal is not enough.
    ///
    /// - Throws: ``NotInTime``, or when there is no such process.
    public static func stop(_ pid: pid_t) throws {
        kill(pid, SIGSTOP)
        try eventually("process \(pid) has stopped") { try isStopped(pid) }
    }

    /// Whether a process has a handler for a signal: before it has one, the signal may end it.
    ///
    /// - Throws: when there is no such process.
    public static func handles(_ signal: Int32, _ pid: pid_t) throws -> Bool {
        let status = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
        let caught = status.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }?.split(separator: "\t").last
        return (caught.flatMap { UInt64($0, radix: 16) } ?? 0) & 1 << UInt64(signal - 1) != 0
    }

    private static func states(of pid: pid_t) throws -> [Character] {
        let tasks = "/proc/\(pid)/task"
        return try FileManager.default.contentsOfDirectory(atPath: tasks).compactMap { task in
            // A thread that ends while it is looked at has none.
            guard let stat = try? String(contentsOfFile: "\(tasks)/\(task)/stat", encoding: .utf8) else { return nil }
            // The state stands behind the name, which is in parentheses and may hold anything.
            return stat[(stat.lastIndex(of: ")") ?? stat.startIndex)...].dropFirst(2).first
        }
    }
}
