// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Foundation
import Testing

/// The programs that each test has started, so that a test that waits in vain can say what they wrote last: services with
/// their logs, buses, observers.
enum ProgramsUnderTest {
    /// How much of each program's output is shown.
    static let lineCount = 30

    private struct Entry: Sendable {
        weak var program: RunningCommand?
        let owner: Test.ID?
    }

    private static let entries = Locked<[Entry]>([])
    private static let ownerKey = "org.carillon.tests.owner"

    /// The test that the calling thread works for; nil where that is not known.
    static var owner: Test.ID? {
        Test.current?.id ?? Thread.current.threadDictionary[ownerKey] as? Test.ID
    }

    /// Has a thread that a test started work for that test.
    static func adopt(_ owner: Test.ID?) {
        if let owner { Thread.current.threadDictionary[ownerKey] = owner }
    }

    static func add(_ program: RunningCommand) {
        let entry = Entry(program: program, owner: owner)
        entries.withLock { entries in
            entries.removeAll { $0.program == nil }
            entries.append(entry)
        }
        _ = isKnown
    }

    private static let isKnown: Void = RunningTests.has(
        RunningTests.Programs(report: report) {
            for program in entries.withLock({ $0.compactMap(\.program) }) { program.kill() }
        })

    /// What those of the calling thread's test wrote last, below a line of its own; nothing when there are none. A thread
    /// that works for no test is told of all.
    static func report() -> String {
        let owner = owner
        let programs = entries.withLock { entries in
            entries.filter { owner == nil || $0.owner == owner }.compactMap(\.program)
        }
        guard !programs.isEmpty else { return "" }
        return "\n=== programs of this test, with their last lines\n"
            + programs.map { $0.lastLines(lineCount) }.joined(separator: "\n")
    }
}
