// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A point on the monotonic clock by which something must have happened.
public struct Deadline: Sendable {
    private let instant: ContinuousClock.Instant

    /// A deadline that is reached `timeout` from now.
    public init(after timeout: Duration) {
        instant = ContinuousClock.now + timeout
    }

    /// The time that is left, never below zero.
    public var remaining: Duration {
        max(.zero, instant - ContinuousClock.now)
    }

    /// Whether the deadline is reached.
    public var hasPassed: Bool {
        ContinuousClock.now >= instant
    }
}

extension Duration {
    /// How long something that has to happen may take. Only a test that fails waits for so long, so this is far beyond
    /// what a machine needs that has much else to do, and on which hundreds of other tests hold the threads of tasks. What must *not* happen is never waited for; for that, wait for
    /// something that comes after it.
    public static let patience = Duration.seconds(900)
}

/// A condition that did not come true in time.
public struct NotInTime: Error, CustomStringConvertible, Sendable {
    /// What was waited for, and what is known about why it did not happen.
    public let description: String

    public init(_ description: String) {
        self.description = description
    }
}

/// Waits until `condition` holds, for conditions of another process that announce themselves to nobody (its memory, a
/// file that it writes). Where there is an event (a reply, a signal, a line of output), wait for that instead.
///
/// The condition is looked at at once, and then again and again with pauses of `interval`; it blocks the calling thread.
///
/// - Parameters:
///   - what: names the condition in the error.
///   - timeout: how long to wait at most.
///   - interval: the pause between two looks.
/// - Throws: ``NotInTime`` when the condition did not hold in time, and whatever `condition` throws.
public func eventually(
    _ what: @autoclosure () -> String,
    within timeout: Duration = .patience,
    every interval: Duration = .milliseconds(5),
    _ condition: () throws -> Bool
) throws {
    let deadline = Deadline(after: timeout)
    while try !condition() {
        if deadline.hasPassed {
            throw NotInTime("not within \(timeout): \(what())")
        }
        Thread.sleep(forTimeInterval: interval.timeInterval)
    }
}

extension Duration {
    /// The duration in seconds, as Foundation counts time.
    var timeInterval: TimeInterval {
        TimeInterval(components.seconds) + TimeInterval(components.attoseconds) * 1e-18
    }
}
