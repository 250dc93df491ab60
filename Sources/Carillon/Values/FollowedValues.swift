// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The known part of the values of a name that the service keeps, by their objects.
///
/// As with ``FollowedValue``, what comes live and what is read take different ways and are decoded on different threads. Each
/// gets its place when it arrives, on the bus thread, and older never takes the place of newer.
///
/// A value that decides and does no input or output. Not thread-safe by itself.
struct FollowedValues<Content: Equatable & Sendable>: Sendable {
    private struct Entry: Sendable {
        /// Nil where there is none, or none yet.
        var content: Content?
        var place: UInt64 = 0
        /// Notifications that have arrived and were not taken yet.
        var waiting = 0
    }

    /// An object in the service's answer.
    struct Answered: Sendable {
        fileprivate let place: UInt64
        /// Those of which something arrived meanwhile that is newer.
        fileprivate let newer: Set<ExactText>
    }

    private var entries: [ExactText: Entry] = [:]
    /// Another number whenever the contents are others.
    private(set) var version = 0
    private var lastPlace: UInt64 = 0
    /// That of the newest reading that was taken: an older one tells nothing.
    private var readPlace: UInt64 = 0
    /// The greatest serial that came of each object while each reading was on its way.
    private var readings: [UInt64: [ExactText: UInt64]] = [:]
    private var lastReading: UInt64 = 0
    /// Posts up to this serial are older than the last answer.
    private var readSerial: UInt64 = 0
    /// How many there were when it was asked, or read, last.
    private var countRead = 0

    /// The values, in no order.
    var contents: [(object: ExactText, content: Content)] {
        entries.compactMap { entry in entry.value.content.map { (entry.key, $0) } }
    }

    func content(of object: ExactText) -> Content? { entries[object]?.content }

    /// Whether so much came that is, perhaps, not kept that the service has to be asked.
    var isFull: Bool { entries.count > 1_024 + 2 * countRead }

    // MARK: Notifications

    /// A notification is there.
    ///
    /// - Returns: its place; nil when it is older than what was read.
    mutating func arrived(_ object: ExactText, serial: UInt64) -> UInt64? {
        guard serial > readSerial else { return nil }
        for number in readings.keys {
            readings[number]![object] = max(readings[number]![object] ?? 0, serial)
        }
        lastPlace += 1
        entries[object, default: Entry()].waiting += 1
        return lastPlace
    }

    /// The service is another one. It may count anew, and then what was read from the one before is no measure.
    mutating func serviceChanged() {
        readSerial = 0
    }

    /// Takes over what has this place, unless something newer was; nil for what nobody can read.
    ///
    /// - Returns: what it has taken the place of, so that nothing of it ends in here.
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

    /// - Returns: its number.
    mutating func beginReading() -> UInt64 {
        lastReading += 1
        readings[lastReading] = [:]
        return lastReading
    }

    /// The service has answered with the values that it keeps.
    ///
    /// - Parameters:
    ///   - serials: of the values.
    ///   - isLast: not to be asked again.
    /// - Returns: nil when something arrived meanwhile of which nobody knows whether it was removed behind that, so that the
    ///   service has to be asked again.
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

    /// Takes over what was read: also that others are gone.
    ///
    /// - Returns: what has given way, so that nothing of it ends in here.
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
