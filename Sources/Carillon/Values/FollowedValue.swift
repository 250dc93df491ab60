// SPDX-License-Identifier: Apache-2.0
/// The known state of a retained value, with the changes that this program made to it.
///
/// Answers and notifications arrive on different paths, and are decoded on different threads. Each gets its position
/// when it arrives, on the bus thread. Only content of a later position replaces the known content, so older content
/// never replaces newer content.
///
/// A change of this program is shown until the service has answered with the value that it keeps after the change.
/// Therefore older content that is still on its way is not shown in between.
///
/// A plain value without input and output. Not thread-safe by itself.
struct FollowedValue<Content: Sendable>: Sendable {
    /// A read request to the service that is in progress.
    struct Reading: Sendable {
        fileprivate let number: UInt64
        /// The number of the last change when the read began; nil if a change was unanswered then.
        fileprivate let change: UInt64?
    }

    /// The last known value of the service; nil if there is none.
    private(set) var known: Content?
    /// The change of this program since; nil if there is none. The content of a removal is nil.
    private var change: Content??
    /// The last change that the service accepted, until a read shows its effect. A refused change reverts to it.
    private var made: Change?
    /// The content to show.
    var shown: Content? { change ?? known }

    /// The position of the last arrival.
    private var lastPlace: UInt64 = 0
    private var knownPlace: UInt64 = 0
    /// Posts up to this serial are older than the value read last.
    private var readSerial: UInt64 = 0
    /// The greatest serial that arrived during each read in progress.
    private var readings: [UInt64: UInt64] = [:]
    private var lastReading: UInt64 = 0

    private struct Change {
        let number: UInt64
        let content: Content?
        /// The position of the last arrival when the service accepted the change.
        let place: UInt64
    }

    private var lastChange: UInt64 = 0
    /// The number of changes that the service has not answered.
    private var unanswered = 0
    /// The number of removals among them. A removal reaches the service one request later than a new value.
    private var removals = 0
    private var isLastChangeRefused = false

    // MARK: Arrivals

    /// Records the arrival of a notification.
    ///
    /// - Returns: its position; nil if the notification is older than the value read last.
    mutating func arrived(serial: UInt64) -> UInt64? {
        guard serial > readSerial else { return nil }
        for (number, greatest) in readings { readings[number] = max(greatest, serial) }
        lastPlace += 1
        return lastPlace
    }

    /// Records a new service instance. Its serials may start again, so the serial of the previous read does not apply
    /// to them.
    mutating func serviceChanged() {
        readSerial = 0
    }

    mutating func beginReading() -> Reading {
        lastReading += 1
        readings[lastReading] = 0
        return Reading(number: lastReading, change: unanswered == 0 ? lastChange : nil)
    }

    /// Records the service's answer to a read.
    ///
    /// - Parameters:
    ///   - serial: the serial of the value; 0 if there is none.
    ///   - isLast: whether this is the last attempt.
    /// - Returns: the position of the answer; nil if the service has to be asked again. The reason is a notification
    ///   that arrived during the read and may be newer, or a removal in progress. On the last attempt the position is
    ///   0, so that the answer is ignored.
    mutating func answered(_ reading: Reading, serial: UInt64, isLast: Bool) -> UInt64? {
        let greatest = readings.removeValue(forKey: reading.number) ?? 0
        // The newest value arrives as a notification.
        if greatest > serial || removals > 0 { return isLast ? 0 : nil }
        // Without a value there is no serial that identifies older posts.
        if serial > 0 { readSerial = serial }
        lastPlace += 1
        return lastPlace
    }

    // MARK: Known content

    /// Takes over content of a position, unless newer content is known.
    mutating func take(_ content: Content?, at place: UInt64) {
        guard place > knownPlace else { return }
        knownPlace = place
        known = content
    }

    /// Takes over the result of a read, and shows it if no change began since.
    mutating func take(_ content: Content?, at place: UInt64, from reading: Reading) {
        take(content, at: place)
        if reading.change == lastChange { (change, made) = (nil, nil) }
    }

    /// Records that a read had no answer, or an answer that cannot be decoded.
    mutating func failed(_ reading: Reading) {
        readings[reading.number] = nil
        guard reading.change == lastChange else { return }
        if let made = newestMade { known = made.content }
        (change, made) = (nil, nil)
    }

    // MARK: Changes

    /// Begins a change by new content or a removal, which is shown from now on.
    ///
    /// - Returns: the number of the change.
    mutating func begin(_ content: Content?) -> UInt64 {
        lastChange += 1
        unanswered += 1
        isLastChangeRefused = false
        change = .some(content)
        if content == nil { removals += 1 }
        return lastChange
    }

    /// Whether no change began after this one.
    func isLast(_ number: UInt64) -> Bool { number == lastChange }

    /// Records the serial of the value that is about to be removed. The removal also covers all earlier posts.
    mutating func willRemove(serial: UInt64) {
        readSerial = serial
    }

    /// Records that the service accepted or refused a change; called once for each change.
    ///
    /// - Parameter content: the content of the change.
    /// - Returns: whether the value has to be read from the service now.
    mutating func ended(_ number: UInt64, _ content: Content?, isMade: Bool) -> Bool {
        unanswered -= 1
        if content == nil { removals -= 1 }
        if isMade, number > made?.number ?? 0 {
            made = Change(number: number, content: content, place: lastPlace)
        }
        if isLast(number) { isLastChangeRefused = !isMade }
        return unanswered == 0
    }

    /// Shows the content before the last change, if that change was refused.
    mutating func undoRefused() {
        if isLastChangeRefused { change = newestMade.map(\.content) }
    }

    /// The last accepted change, unless newer content is known.
    private var newestMade: Change? { made.flatMap { $0.place < knownPlace ? nil : $0 } }
}
