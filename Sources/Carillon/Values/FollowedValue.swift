// SPDX-License-Identifier: Apache-2.0
/// What is known of a value that the service keeps, and what was set here meanwhile.
///
/// What is read and what comes live take different ways, and are decoded on different threads. Each gets its place when
/// it arrives, on the bus thread, and is taken over only by what has a later one: older never takes the place of newer.
///
/// What was set here is what is to be seen until the service has told what it keeps since, so that nothing older that
/// is still on its way shows in between.
///
/// A value that decides and does no input or output. Not thread-safe by itself.
struct FollowedValue<Content: Sendable>: Sendable {
    /// A question to the service, on its way.
    struct Reading: Sendable {
        fileprivate let number: UInt64
        /// The last thing that was set when it was asked, if the service had answered that.
        fileprivate let change: UInt64?
    }

    /// What the service keeps, as far as it told; nil for nothing.
    private(set) var known: Content?
    /// What was set here since; nil where there is no such thing, and nothing in it for a removal.
    private var change: Content??
    /// The last change that the service made, until it has told what it keeps since: a refused one goes back to it.
    private var made: Change?
    /// What is to be seen.
    var shown: Content? { change ?? known }

    /// Counts what arrived.
    private var lastPlace: UInt64 = 0
    private var knownPlace: UInt64 = 0
    /// What was posted up to here is older than what was read.
    private var readSerial: UInt64 = 0
    /// The greatest serial that came while each reading was on its way.
    private var readings: [UInt64: UInt64] = [:]
    private var lastReading: UInt64 = 0

    private struct Change {
        let number: UInt64
        let content: Content?
        /// Of the last thing that had arrived when it was made.
        let place: UInt64
    }

    private var lastChange: UInt64 = 0
    /// Changes that the service has not answered.
    private var unanswered = 0
    /// Removals among these, of which the service hears a step later than of what is set.
    private var removals = 0
    private var isLastChangeRefused = false

    // MARK: What arrives

    /// A notification is there.
    ///
    /// - Returns: its place; nil when it is older than what was read.
    mutating func arrived(serial: UInt64) -> UInt64? {
        guard serial > readSerial else { return nil }
        for (number, greatest) in readings { readings[number] = max(greatest, serial) }
        lastPlace += 1
        return lastPlace
    }

    /// The service is another one. It may count anew, and then what was read from the one before is no measure.
    mutating func serviceChanged() {
        readSerial = 0
    }

    mutating func beginReading() -> Reading {
        lastReading += 1
        readings[lastReading] = 0
        return Reading(number: lastReading, change: unanswered == 0 ? lastChange : nil)
    }

    /// What the service keeps is there.
    ///
    /// - Parameters:
    ///   - serial: of the value; 0 when there is none.
    ///   - isLast: not to be asked again.
    /// - Returns: its place; nil when something arrived meanwhile of which nobody knows whether it is newer, or
    ///   something is being removed, so that the service has to be asked again.
    mutating func answered(_ reading: Reading, serial: UInt64, isLast: Bool) -> UInt64? {
        let greatest = readings.removeValue(forKey: reading.number) ?? 0
        // It goes on: the newest comes that way.
        if greatest > serial || removals > 0 { return isLast ? 0 : nil }
        // Nothing tells what came before a value that is gone.
        if serial > 0 { readSerial = serial }
        lastPlace += 1
        return lastPlace
    }

    // MARK: What is taken over

    /// Takes over what has this place, unless something newer was.
    mutating func take(_ content: Content?, at place: UInt64) {
        guard place > knownPlace else { return }
        knownPlace = place
        known = content
    }

    /// Takes over what was read, and shows that from now on, if nothing was set since.
    mutating func take(_ content: Content?, at place: UInt64, from reading: Reading) {
        take(content, at: place)
        if reading.change == lastChange { (change, made) = (nil, nil) }
    }

    /// There was no answer, or one that can't be understood.
    mutating func failed(_ reading: Reading) {
        readings[reading.number] = nil
        guard reading.change == lastChange else { return }
        if let made = newestMade { known = made.content }
        (change, made) = (nil, nil)
    }

    // MARK: What is set

    /// Something is set, or removed, and shown from now on.
    ///
    /// - Returns: its number.
    mutating func begin(_ content: Content?) -> UInt64 {
        lastChange += 1
        unanswered += 1
        isLastChangeRefused = false
        change = .some(content)
        if content == nil { removals += 1 }
        return lastChange
    }

    /// Whether nothing was set since.
    func isLast(_ number: UInt64) -> Bool { number == lastChange }

    /// What shall be removed has this serial, and what came before is gone with it.
    mutating func willRemove(serial: UInt64) {
        readSerial = serial
    }

    /// The service has done it, or refused; once for each change.
    ///
    /// - Parameter content: that of the change.
    /// - Returns: whether it is to be asked now what it keeps.
    mutating func ended(_ number: UInt64, _ content: Content?, isMade: Bool) -> Bool {
        unanswered -= 1
        if content == nil { removals -= 1 }
        if isMade, number > made?.number ?? 0 {
            made = Change(number: number, content: content, place: lastPlace)
        }
        if isLast(number) { isLastChangeRefused = !isMade }
        return unanswered == 0
    }

    /// Shows what there was before the last change, if that was refused.
    mutating func undoRefused() {
        if isLastChangeRefused { change = newestMade.map(\.content) }
    }

    /// The last change that was made, unless something newer is known.
    private var newestMade: Change? { made.flatMap { $0.place < knownPlace ? nil : $0 } }
}
