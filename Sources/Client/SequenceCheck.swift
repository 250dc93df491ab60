// SPDX-License-Identifier: Apache-2.0
/// The check of the sequence numbers of received notifications, which finds losses and duplicates (D6).
///
/// The service numbers the notifications of each client: 1, 2, 3 … A lost notification takes a number as well, so a
/// hole means a loss. A `Dropped` signal reports losses; their numbers are then expected to be missing. Each
/// notification also has a serial, its number among all posts of the service, which identifies it.
///
/// ``ServiceSession`` calls ``check(sequence:serial:)`` for each notification. A plain value without input and output.
struct SequenceCheck {
    /// The result of checking a notification.
    enum Outcome: Equatable {
        /// The notification is new, and no unreported loss precedes it.
        case next
        /// The notification is new, and `count` notifications before it are lost without a report.
        case missing(count: UInt64)
        /// A duplicate. The service was killed after it sent the notification and before it recorded that, or a channel
        /// ended.
        case repeated
    }

    /// The numbers of the last notification. Reported losses advance the sequence; the serial is then 0, for none.
    private var last: (sequence: UInt64, serial: UInt64) = (0, 0)
    /// The greatest serial so far. It need not be the last one, because a retained value arrives with its original
    /// serial.
    private var greatestSerial: UInt64 = 0
    /// The last sequence number under the assumption that the new service began to count at 1. Nil when the service is
    /// known to continue the count.
    private var restartedCount: UInt64?
    /// The numbers of the last notification that may arrive a second time; nil when none may.
    private var duplicateLimit: (sequence: UInt64, serial: UInt64)?
    /// The size of the next hole that an earlier `Dropped` signal has already reported.
    private var excused: UInt64 = 0

    /// Checks a notification and records its numbers.
    ///
    /// - Parameters:
    ///   - sequence: the number in the stream of this client.
    ///   - serial: the number among all posts of the service.
    mutating func check(sequence: UInt64, serial: UInt64) -> Outcome {
        if let duplicateLimit, sequence <= duplicateLimit.sequence, serial <= duplicateLimit.serial { return .repeated }
        let before = last
        let (excused, restartedCount) = (excused, restartedCount)
        // A smaller sequence number belongs to the count of another service, whose serials may have begun anew.
        greatestSerial = sequence < before.sequence ? serial : max(greatestSerial, serial)
        last = (sequence, serial)
        self.excused = 0
        self.restartedCount = nil
        if sequence == before.sequence &+ 1 { return .next }
        // The same numbers again mean a duplicate. They do not if the count may have begun at 1 (`restartedCount`):
        // such a service repeats nothing, and assigns the numbers of earlier services a second time.
        if restartedCount == nil, sequence == before.sequence, serial == before.serial { return .repeated }
        // The notification follows the count that it fits: the greater of the two last numbers below its own. A number
        // below both belongs to a new count, and is no loss.
        let bases = [before.sequence, restartedCount ?? before.sequence]
        guard let base = bases.filter({ $0 < sequence }).max(), sequence - base - 1 > excused else { return .next }
        return .missing(count: sequence - base - 1 - excused)
    }

    /// Applies a loss that the service reported.
    ///
    /// - Parameter isBound: whether the lost notifications were sent with numbers, and `count` is an upper bound,
    ///   because it is not known which of them arrived. The next hole, up to this size, is then not reported again.
    ///   Otherwise the losses take the next `count` numbers.
    mutating func dropped(_ count: UInt64, isBound: Bool = false) {
        if isBound {
            excused = excused &+ count
        } else {
            last = (last.sequence &+ count, 0)
            restartedCount = restartedCount.map { $0 &+ count }
        }
    }

    /// Treats notifications with the numbers received until now as duplicates. Called at the end of a channel: the
    /// service can't know how much of its content was read, and sends it again.
    mutating func mayRepeat() {
        // While the count may have begun at 1, numbers of the earlier count can't be compared with it.
        duplicateLimit = restartedCount == nil ? (last.sequence, greatestSerial) : nil
    }

    /// Allows the next service to continue the count, or to begin at 1. Called for a service that may not know this
    /// client.
    mutating func mayBeginAnew() {
        restartedCount = 0
        duplicateLimit = nil
        // Its serials may have begun at 1 as well, so earlier serials can't identify duplicates.
        greatestSerial = 0
    }

    /// Resets the check after a change of the connection: every service then counts from 1.
    mutating func reset() {
        last = (0, 0)
        greatestSerial = 0
        excused = 0
        restartedCount = nil
        duplicateLimit = nil
    }
}
