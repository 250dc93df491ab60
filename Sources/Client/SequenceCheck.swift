// SPDX-License-Identifier: Apache-2.0
/// Watches the numbers that the service gives to a client's notifications: 1, 2, 3 … without holes, unless `Dropped`
/// said so (D6).
struct SequenceCheck {
    enum Outcome: Equatable {
        case next
        case missing(count: UInt64)
        /// The very same again, as happens when the service is killed between sending and noting that it did.
        case repeated
    }

    private var last: (sequence: UInt64, serial: UInt64) = (0, 0)
    /// A value that stays comes with the serial that it had, so the last one need not be the greatest.
    private var greatestSerial: UInt64 = 0
    /// How far the count of a service has come that may have begun anew; nil where none has.
    private var anew: UInt64?
    /// How far the numbers go that may come once more.
    private var heard: (sequence: UInt64, serial: UInt64)?
    /// How many numbers before the next one may be missing without being a loss that was not told.
    private var excused: UInt64 = 0

    mutating func check(sequence: UInt64, serial: UInt64) -> Outcome {
        if let heard, sequence <= heard.sequence, serial <= heard.serial { return .repeated }
        let before = last
        let (excused, anew) = (excused, anew)
        greatestSerial = sequence < before.sequence ? serial : max(greatestSerial, serial)
        last = (sequence, serial)
        self.excused = 0
        self.anew = nil
        if sequence == before.sequence &+ 1 { return .next }
        // A service that knows nothing of us repeats nothing, and its numbers begin where those of others did.
        if anew == nil, sequence == before.sequence, serial == before.serial { return .repeated }
        // A smaller number is a count that began anew.
        let bases = [before.sequence, anew ?? before.sequence]
        guard let base = bases.filter({ $0 < sequence }).max(), sequence - base - 1 > excused else { return .next }
        return .missing(count: sequence - base - 1 - excused)
    }

    /// The service told of a loss.
    ///
    /// - Parameter isBound: the numbers were given before, and it may be fewer: the bus did not say what it carried.
    mutating func dropped(_ count: UInt64, isBound: Bool = false) {
        if isBound {
            excused = excused &+ count
        } else {
            last = (last.sequence &+ count, 0)
            anew = anew.map { $0 &+ count }
        }
    }

    /// What was heard until now may come again, in its order: nobody knows how much of what a channel held was read.
    mutating func mayRepeat() {
        // Numbers that were given before a count that may have begun anew are no measure of that count's.
        heard = anew == nil ? (last.sequence, greatestSerial) : nil
    }

    /// The next service may go on with the count, or know nothing of it.
    mutating func mayBeginAnew() {
        anew = 0
        heard = nil
        // Its serials may have begun anew as well, so those of before are no measure of what comes again.
        greatestSerial = 0
    }

    /// The next service counts from one.
    mutating func reset() {
        last = (0, 0)
        greatestSerial = 0
        excused = 0
        anew = nil
        heard = nil
    }
}
