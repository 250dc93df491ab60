// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The known values of a name that the service keeps, by their objects.
///
/// As in ``FollowedValue``, answers and notifications arrive on different paths, and are decoded on different threads.
/// Each gets its position when it arrives, on the bus thread, and older content never replaces newer content.
///
/// A plain value without input and output. Not thread-safe by itself.
struct FollowedValues<Content: Equatable & Sendable>: Sendable {
    private struct Entry: Sendable {
        /// The content; nil if there is none, or if it is not known yet.
        var content: Content?
        var place: UInt64 = 0
        /// The number of notifications that have arrived and are not taken over yet.
        var waiting = 0
    }

    /// The service's answer to a read: its position, and the objects that it does not apply to.
    struct Answered: Sendable {
        fileprivate let place: UInt64
        /// The objects with a newer notification that arrived during the read.
        fileprivate let newer: Set<ExactText>
    }

    private var entries: [ExactText: Entry] = [:]
    /// A number that changes with the contents.
    private(set) var version = 0
    private var lastPlace: UInt64 = 0
    /// The position of the newest answer taken over. Older answers are ignored.
    private var readPlace: UInt64 = 0
    /// The greatest serial of each object that arrived during each read in progress.
    private var readings: [UInt64: [ExactText: UInt64]] = [:]
    private var lastReading: UInt64 = 0
    /// Posts up to this serial are older than the last answer.
    private var readSerial: UInt64 = 0
    /// The number of entries when the last answer arrived or was taken over.
    private var countRead = 0

    /// The values in no order.
    var contents: [(object: ExactText, content: Content)] {
        entries.compactMap { entry in entry.value.content.map { (entry.key, $0) } }
    }

    func content(of object: ExactText) -> Content? { entries[object]?.content }

    /// Whether the number of entries requires a read: posts that are not retained may be among them.
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
        lastPlace += 1
        entries[object, default: Entry()].waiting += 1
        return lastPlace
    }

    /// Records a new service instance. Its serials may start again, so the serial of the previous answer does not apply
    /// to them.
    mutating func serviceChanged() {
        readSerial = 0
    }

    /// Takes over content of a position, unless newer content is known; nil for content that cannot be decoded.
    ///
    /// - Returns: the replaced content, which the caller releases with no lock held.
    mutating func take(_ content: Content?, of object: ExactText, at place: UInt64) -> Content? {
        guard let entry = entries[object] else { return nil }
        entries[object]!.waiting -= 1
        guard let content, place > entry.place else { return nil }
        put(content, of: object, at: place)
        return entry.content
    }

    private mutating func put(_ content: Content?, of object: ExactText, at place: UInt64) {
        let entry = entries[object] ?? Entry()
        if entry.content != content { version += 1 }
        entries[object] =
            content == nil && entry.waiting == 0
            ? nil : Entry(content: content, place: place, waiting: entry.waiting)
    }

    // MARK: Answers of the service

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
    /// - Returns: the position of the answer; nil if the service has to be asked again. The reason is a notification
    ///   that arrived during the read with an object that the answer lacks: its value may have been removed afterwards.
    mutating func answered(_ reading: UInt64, serials: [ExactText: UInt64], isLast: Bool) -> Answered? {
        let newer = (readings.removeValue(forKey: reading) ?? [:]).filter { $0.value > serials[$0.key] ?? 0 }
        guard isLast || newer.keys.allSatisfy({ serials[$0] != nil }) else { return nil }
        readSerial = max(readSerial, serials.values.max() ?? 0)
        lastPlace += 1
        countRead = entries.count
        return Answered(place: lastPlace, newer: Set(newer.keys))
    }

    mutating func failed(_ reading: UInt64) {
        readings[reading] = nil
    }

    /// Takes over the contents of an answer, including removals.
    ///
    /// - Returns: the previous contents, which the caller releases with no lock held.
    mutating func take(_ contents: [ExactText: Content], _ answered: Answered) -> [Content] {
        guard answered.place > readPlace else { return [] }
        readPlace = answered.place
        let before = entries
        for object in Set(contents.keys).union(before.keys) where !answered.newer.contains(object) {
            guard answered.place > before[object]?.place ?? 0 else { continue }
            put(contents[object], of: object, at: answered.place)
        }
        countRead = entries.count
        return before.values.compactMap(\.content)
    }
}
