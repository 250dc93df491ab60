// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The local copy of all retained values of a name, by their objects. It is merged from notifications and from answers
/// of the service to reads; ``DistributedValues`` shows it.
///
/// As in ``FollowedValue``, each answer and notification gets a position, a rising number, when it arrives on the bus
/// thread. They may be decoded out of order; content of an earlier position never replaces content of a later one.
///
/// A plain value without input and output. Not thread-safe by itself; used under the lock of ``DistributedValues``.
struct FollowedValues<Content: Equatable & Sendable>: Sendable {
    /// The state of one object.
    private struct Entry: Sendable {
        /// The content; nil if there is none, or if it is not known yet.
        var content: Content?
        /// The position of the content.
        var position: UInt64 = 0
        /// The number of notifications that have arrived and are not decoded yet.
        var waiting = 0
    }

    /// The record of the service's answer to a read: its position, and the objects for which it is out of date.
    struct Answered: Sendable {
        fileprivate let position: UInt64
        /// The objects with a newer notification that arrived during the read.
        fileprivate let newer: Set<ExactText>
    }

    private var entries: [ExactText: Entry] = [:]
    /// A number that changes with the contents.
    private(set) var version = 0
    /// The position of the last arrival.
    private var lastPosition: UInt64 = 0
    /// The position of the latest recorded answer. Answers of earlier positions are ignored.
    private var readPosition: UInt64 = 0
    /// The greatest serial of each object in the notifications that arrived during each read in progress, by the number
    /// of the read. A **serial** is the number of a post among all that the service has accepted.
    private var readings: [UInt64: [ExactText: UInt64]] = [:]
    private var lastReading: UInt64 = 0
    /// The greatest serial in the last answer. Posts with serials up to it are older, and are ignored.
    private var readSerial: UInt64 = 0
    /// The number of entries when the last answer arrived or was recorded.
    private var countRead = 0

    /// The values in no order.
    var contents: [(object: ExactText, content: Content)] {
        entries.compactMap { entry in entry.value.content.map { (entry.key, $0) } }
    }

    /// The content of an object; nil if there is none, or if it is not known yet.
    func content(of object: ExactText) -> Content? { entries[object]?.content }

    /// Whether there are so many entries that the values must be read again. Entries of posts that are not retained may
    /// be among them; a read removes those. The limit grows with the number at the last read, so the cost of reads is
    /// constant for each notification, amortized.
    var isFull: Bool { entries.count > 1_024 + 2 * countRead }

    // MARK: Notifications

    /// Records the arrival of a notification.
    ///
    /// - Returns: its position; nil if the notification is older than the last answer.
    mutating func arrived(_ object: ExactText, serial: UInt64) -> UInt64? {
        guard serial > readSerial else { return nil }
        for number in readings.keys {
            readings[number]![object] = max(readings[number]![object] ?? 0, serial)
        }
        lastPosition += 1
        entries[object, default: Entry()].waiting += 1
        return lastPosition
    }

    /// Records a new service instance. Its serials may start again, so the serial of the previous answer does not apply
    /// to them.
    mutating func serviceChanged() {
        readSerial = 0
    }

    /// Records the decoded content of a notification, unless content of a later position is known.
    ///
    /// - Parameter content: the content; nil if it cannot be decoded.
    /// - Returns: the replaced content, which the caller releases with no lock held.
    mutating func take(_ content: Content?, of object: ExactText, at position: UInt64) -> Content? {
        guard let entry = entries[object] else { return nil }
        entries[object]!.waiting -= 1
        guard let content, position > entry.position else { return nil }
        put(content, of: object, at: position)
        return entry.content
    }

    /// Sets the content of an object. An entry without content and waiting notifications is removed.
    private mutating func put(_ content: Content?, of object: ExactText, at position: UInt64) {
        let entry = entries[object] ?? Entry()
        if entry.content != content { version += 1 }
        entries[object] =
            content == nil && entry.waiting == 0
            ? nil : Entry(content: content, position: position, waiting: entry.waiting)
    }

    // MARK: Answers of the service

    /// Records that a read begins.
    ///
    /// - Returns: the number of the read.
    mutating func beginReading() -> UInt64 {
        lastReading += 1
        readings[lastReading] = [:]
        return lastReading
    }

    /// Records the service's answer to a read.
    ///
    /// - Parameters:
    ///   - serials: the serials of the values.
    ///   - isLast: whether this is the last attempt.
    /// - Returns: the record of the answer; nil if the service has to be asked again. The reason is a notification that
    ///   arrived during the read, for an object that the answer lacks. It is unknown whether the notification precedes
    ///   the answer and its value was removed, or follows the answer.
    mutating func answered(_ reading: UInt64, serials: [ExactText: UInt64], isLast: Bool) -> Answered? {
        let newer = (readings.removeValue(forKey: reading) ?? [:]).filter { $0.value > serials[$0.key] ?? 0 }
        guard isLast || newer.keys.allSatisfy({ serials[$0] != nil }) else { return nil }
        readSerial = max(readSerial, serials.values.max() ?? 0)
        lastPosition += 1
        countRead = entries.count
        return Answered(position: lastPosition, newer: Set(newer.keys))
    }

    /// Records that a read had no answer.
    mutating func failed(_ reading: UInt64) {
        readings[reading] = nil
    }

    /// Records the decoded contents of an answer. Objects that it lacks have been removed.
    ///
    /// - Returns: the previous contents, which the caller releases with no lock held.
    mutating func take(_ contents: [ExactText: Content], _ answered: Answered) -> [Content] {
        guard answered.position > readPosition else { return [] }
        readPosition = answered.position
        let before = entries
        for object in Set(contents.keys).union(before.keys) where !answered.newer.contains(object) {
            guard answered.position > before[object]?.position ?? 0 else { continue }
            put(contents[object], of: object, at: answered.position)
        }
        countRead = entries.count
        return before.values.compactMap(\.content)
    }
}
