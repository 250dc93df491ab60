// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Foundation
import Synchronization

/// Something that did not happen in time.
public struct NotInTime: Error, CustomStringConvertible, Sendable {
    /// What was waited for, what is known about why it did not happen, and what the programs of the test wrote last.
    public let description: String

    public init(_ description: String) {
        self.description = description + ProgramsUnderTest.report()
    }
}

/// Waits until `condition` holds, for conditions of another process that announce themselves to nobody (its memory, a
/// file that it writes). Where there is an event (a reply, a signal, a line of output), wait for that instead.
///
/// The condition is looked at at once, and then again and again with pauses of `interval`; it blocks the calling thread.
///
/// - Parameters:
///   - what: names the condition in the error.
///   - patience: how long to wait at most.
///   - interval: the pause between two looks.
///   - progress: how much has come of what is waited for; the time begins anew when it grows.
/// - Throws: ``NotInTime`` when the condition did not hold in time, and whatever `condition` throws.
public func eventually(
    _ what: @autoclosure () -> String,
    within patience: Patience = .event,
    every interval: Duration = .milliseconds(5),
    progress: (() -> Int)? = nil,
    _ condition: () throws -> Bool
) throws {
    var wait = Wait(patience)
    var come = progress?() ?? 0
    while try !condition() {
        if let now = progress?(), now > come {
            come = now
            wait.goOn()
        }
        try wait.look(for: what())
        Thread.sleep(forTimeInterval: interval.timeInterval)
    }
}

/// Waits until as many have come of something as are to come, or more. The time begins anew with each: on a machine that is
/// busy many take long.
public func eventually(
    _ what: String, within patience: Patience = .event, comesTo total: Int, _ count: () throws -> Int
) throws {
    var come = try count()
    try eventually("\(what): \(come) of \(total)", within: patience, progress: { come }) {
        come = try count()
        return come >= total
    }
}

/// The same in a task, without blocking its thread.
public func eventuallyInTask(
    _ what: @autoclosure () -> String,
    within patience: Patience = .event,
    progress: (() -> Int)? = nil,
    isolation: isolated (any Actor)? = #isolation,
    _ condition: () async throws -> Bool
) async throws {
    var wait = Wait(inTask: patience)
    var come = progress?() ?? 0
    while try await !condition() {
        if let now = progress?(), now > come {
            come = now
            wait.goOn()
        }
        try await throughThePool()
        try wait.look(for: what())
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// Waits for the end of something that runs in tasks and has no bound of its own: a sequence's next element, a gate.
///
/// - Parameters:
///   - what: names it in the error.
///   - body: is cancelled when it takes too long, and not waited for then.
/// - Throws: ``NotInTime``, and whatever `body` throws.
public func awaiting<Result: Sendable>(
    _ what: String, within patience: Patience = .event, _ body: @escaping @Sendable () async throws -> Result
) async throws -> Result {
    let box = Box(Locked<Swift.Result<Result, any Error>?>(nil))
    let task = Task {
        let outcome: Swift.Result<Result, any Error>
        do { outcome = .success(try await body()) } catch { outcome = .failure(error) }
        box.value.withLock { $0 = outcome }
    }
    var wait = Wait(inTask: patience)
    while true {
        if let outcome = box.value.withLock({ $0 }) { return try outcome.get() }
        do {
            try await throughThePool()
            try wait.look(for: what)
            try await Task.sleep(for: .milliseconds(2))
        } catch {
            task.cancel()
            throw error
        }
    }
}

/// Goes once through the pool of tasks, on which much of what a task waits for goes on: while others hold its threads, nothing
/// comes.
private func throughThePool() async throws {
    let hasPassed = Passage()
    Task.detached { hasPassed.end() }
    let start = ContinuousClock.now
    while !hasPassed.isOver {
        guard ContinuousClock.now - start < .seconds(60) else {
            throw NotInTime("not within a minute: a thread of the pool of tasks, all of which are held")
        }
        try? await Task.sleep(for: .milliseconds(1))
    }
}

private final class Passage: Sendable {
    private let state = Atomic(false)
    var isOver: Bool { state.load(ordering: .acquiring) }
    func end() { state.store(true, ordering: .releasing) }
}

/// Shares what can't be copied.
private final class Box<Value: ~Copyable & Sendable>: Sendable {
    let value: Value

    init(_ value: consuming Value) {
        self.value = value
    }
}

/// Lets time pass in which something must not happen, or in which it has to go by. Nothing is expected of how much can be
/// done in it: on a machine that is busy a fault may be missed, and nothing fails.
///
/// - Parameter reason: what the time is for.
public func letPass(_ time: Duration, because reason: String) {
    Thread.sleep(forTimeInterval: time.timeInterval)
}

/// The same in a task, without blocking its thread.
public func letPassInTask(_ time: Duration, because reason: String) async throws {
    try await Task.sleep(for: time)
}

extension Duration {
    /// The duration in seconds, as Foundation counts time.
    var timeInterval: TimeInterval {
        TimeInterval(components.seconds) + TimeInterval(components.attoseconds) * 1e-18
    }
}
