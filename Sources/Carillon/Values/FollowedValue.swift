// SPDX-License-Identifier: Apache-2.0
/// The local copy of one retained value, merged from three sources: notifications, answers of the service to reads, and
/// changes by this program that the service has not confirmed. ``DistributedValue`` shows it.
///
/// **Order of arrivals.** Answers and notifications are decoded on different threads, and may be decoded out of order.
/// Each gets a position, a rising number, when it arrives on the bus thread. Content replaces the known content only if
/// its position is later.
///
/// **Own changes.** A change of this program is shown at once. It stays shown until all changes are answered and a read
/// has returned the value that the service keeps. Older content that arrives in between is recorded and not shown.
///
/// A plain value without input and output. Not thread-safe by itself; used under the lock of ``DistributedValue``.
struct FollowedValue<Content: Sendable>: Sendable {
    /// A read request to the service that is in progress.
    struct Reading: Sendable {
        fileprivate let number: UInt64
        /// The number of the last change when the read began. Nil if a change was unanswered then: the result of the
        /// read may precede that change.
        fileprivate let change: UInt64?
    }

    /// The last known value of the service; nil if there is none.
    private(set) var known: Content?
    /// The content of this program's last change, until a read shows its effect; nil if there is none. The inner
    /// optional is nil for a removal.
    private var change: Content??
    /// The last change that the service accepted, until a read shows its effect. After a refused change, its content is
    /// shown again.
    private var accepted: Change?
    /// The content to show.
    var shown: Content? { change ?? known }

    /// The position of the last arrival.
    private var lastPosition: UInt64 = 0
    /// The position of the known content.
    private var knownPosition: UInt64 = 0
    /// The serial of the value that the last read returned, or that is being removed. Posts with serials up to it are
    /// older, and are ignored. A **serial** is the number of a post among all that the service has accepted.
    private var readSerial: UInt64 = 0
    /// The greatest serial of a notification that arrived during each read in progress, by the number of the read.
    private var readings: [UInt64: UInt64] = [:]
    private var lastReading: UInt64 = 0

    /// A change that the service accepted.
    private struct Change {
        let number: UInt64
        let content: Content?
        /// The position of the last arrival when the service accepted the change.
        let position: UInt64
    }

    /// The number of the last change.
    private var lastChange: UInt64 = 0
    /// The number of changes that the service has not answered.
    private var unanswered = 0
    /// The number of removals among them. A removal first reads the value and then removes it, so a read that begins in
    /// between still returns the value.
    private var removals = 0
    /// Whether the service refused the last change.
    private var isLastChangeRefused = false

    // MARK: Arrivals

    /// Records the arrival of a notification.
    ///
    /// - Returns: its position; nil if the notification is older than the value read last.
    mutating func arrived(serial: UInt64) -> UInt64? {
        guard serial > readSerial else { return nil }
        for (number, greatest) in readings { readings[number] = max(greatest, serial) }
        lastPosition += 1
        return lastPosition
    }

    /// Records a new service instance. Its serials may start again, so the serial of the previous read does not apply
    /// to them.
    mutating func serviceChanged() {
        readSerial = 0
    }

    /// Records that a read begins.
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
        // On the last attempt the answer can be ignored: the newer value arrives as a notification.
        if greatest > serial || removals > 0 { return isLast ? 0 : nil }
        // Without a value there is no serial by which older posts could be recognized.
        if serial > 0 { readSerial = serial }
        lastPosition += 1
        return lastPosition
    }

    // MARK: Known content

    /// Records decoded content as known, unless content of a later position is known.
    mutating func take(_ content: Content?, at position: UInt64) {
        guard position > knownPosition else { return }
        knownPosition = position
        known = content
    }

    /// Records the decoded result of a read. It is shown if no change was unanswered when the read began and no change
    /// began since.
    mutating func take(_ content: Content?, at position: UInt64, from reading: Reading) {
        take(content, at: position)
        if reading.change == lastChange { (change, accepted) = (nil, nil) }
    }

    /// Records that a read had no answer, or an answer that cannot be decoded. The accepted changes are then the best
    /// knowledge of the value.
    mutating func failed(_ reading: Reading) {
        readings[reading.number] = nil
        guard reading.change == lastChange else { return }
        if let accepted = newestAccepted { known = accepted.content }
        (change, accepted) = (nil, nil)
    }

    // MARK: Changes

    /// Records a change of this program, which is shown from now on.
    ///
    /// - Parameter content: the new content; nil for a removal.
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

    /// Records the serial of the value that is about to be removed. Earlier posts that arrive later are then ignored.
    mutating func willRemove(serial: UInt64) {
        readSerial = serial
    }

    /// Records that the service accepted or refused a change; called once for each change.
    ///
    /// - Parameter content: the content of the change.
    /// - Returns: whether the value has to be read from the service now, because no change is unanswered.
    mutating func ended(_ number: UInt64, _ content: Content?, isAccepted: Bool) -> Bool {
        unanswered -= 1
        if content == nil { removals -= 1 }
        if isAccepted, number > accepted?.number ?? 0 {
            accepted = Change(number: number, content: content, position: lastPosition)
        }
        if isLast(number) { isLastChangeRefused = !isAccepted }
        return unanswered == 0
    }

    /// Shows the last accepted change, or else the known content, if the last change was refused.
    mutating func undoRefused() {
        if isLastChangeRefused { change = newestAccepted.map(\.content) }
    }

    /// The last accepted change, unless newer content is known.
    private var newestAccepted: Change? { accepted.flatMap { $0.position < knownPosition ? nil : $0 } }
}
