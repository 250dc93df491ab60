// SPDX-License-Identifier: Apache-2.0
import Foundation

/// How often the threads of a process went to sleep, and the processor time that they used: what does not change while
/// it sleeps.
public struct Wakefulness: Equatable, Sendable {
    /// How often a thread gave its processor away.
    public let switches: Int
    /// Processor time, in clock ticks.
    public let ticks: Int
    public let threads: Int

    /// - Throws: when there is no such process.
    public init(of pid: pid_t) throws {
        let tasks = "/proc/\(pid)/task"
        let counts = try FileManager.default.contentsOfDirectory(atPath: tasks).compactMap { task -> Int? in
            // A thread that ends while it is looked at.
            guard let status = try? String(contentsOfFile: "\(tasks)/\(task)/status", encoding: .utf8),
                let count = status.firstMatch(of: /\nvoluntary_ctxt_switches:\s*(\d+)/)
            else { return nil }
            return Int(count.1)
        }
        switches = counts.reduce(0, +)
        threads = counts.count
        let stat = try String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
        // Behind the name in parentheses, which may hold anything: fields 14 and 15 are the times.
        let fields = stat[(stat.lastIndex(of: ")") ?? stat.startIndex)...].split(separator: " ")
        ticks = (Int(fields[12]) ?? 0) + (Int(fields[13]) ?? 0)
    }

    /// What it is once the process has come to rest: it is asleep, nobody has anything for it that he had no processor
    /// for yet, and nothing changed between two looks.
    ///
    /// - Parameters:
    ///   - others: processes that it talks with, the bus among them.
    ///   - look: what this process has to do so that nothing waits for it either.
    /// - Throws: ``NotInTime``, and whatever `look` throws.
    public static func settled(
        of pid: pid_t, beside others: [pid_t], meanwhile look: () throws -> Void = {}
    ) throws -> Wakefulness {
        var last: Wakefulness?
        try eventually("process \(pid) comes to rest", every: .milliseconds(100)) {
            try look()
            guard try ([pid] + others).allSatisfy(ProcessState.isAsleep) else {
                last = nil
                return false
            }
            let now = try Wakefulness(of: pid)
            defer { last = now }
            return now == last
        }
        return last!
    }

    /// Looks at a process at rest, and again a second later.
    ///
    /// The threads of libdispatch end some seconds after they had something to do. A second in which one does is not
    /// one in which nothing happens, so another one is looked at.
    ///
    /// - Parameters: those of ``settled(of:beside:meanwhile:)``.
    /// - Throws: what that throws.
    public static func overASecond(
        of pid: pid_t, beside others: [pid_t], meanwhile look: () throws -> Void = {}
    ) throws -> (before: Wakefulness, after: Wakefulness) {
        var wait = Wait(.start)
        while true {
            try wait.look(for: "a second in which process \(pid) loses no thread")
            let before = try settled(of: pid, beside: others, meanwhile: look)
            letPass(.seconds(1), because: "nothing is to happen in it")
            let after = try Wakefulness(of: pid)
            // There are only so many.
            if after.threads >= before.threads { return (before, after) }
        }
    }
}
