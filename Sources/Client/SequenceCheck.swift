// SPDX-License-Identifier: Apache-2.0
/// The check of the numbers that the service gives to a client's notifications: 1, 2, 3 … without gaps, except for
/// losses that `Dropped` reports (D6).
struct SequenceCheck {
    enum Outcome: Equatable {
        case next
        case missing(count: UInt64)
        /// The same notification again, because the service was killed between sending it and recording that it did.
        case repeated
    }

    private var last: (sequence: UInt64, serial: UInt64) = (0, 0)
    /// A retained value arrives with its original serial, so the last serial need not be the greatest.
    private var greatestSerial: UInt64 = 0
    /// The last number of a count that may have begun anew; nil when no count has.
    private var anew: UInt64?
    /// The greatest numbers that may arrive again.
    private var heard: (sequence: UInt64, serial: UInt64)?
    /// The number of missing sequence numbers that an earlier `Dropped` signal covers.
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
        // A service that does not know this client repeats nothing, and its count begins with the same numbers as that
        // of earlier services.
        if anew == nil, sequence == before.sequence, serial == before.serial { return .repeated }
        // A smaller number belongs to a count that began anew.
        let bases = [before.sequence, anew ?? before.sequence]
        guard let base = bases.filter({ $0 < sequence }).max(), sequence - base - 1 > excused else { return .next }
        return .missing(count: sequence - base - 1 - excused)
    }

    /// Applies a loss that the service reported.
    ///
    /// - Parameter isBound: whether the numbers were assigned before and `count` is an upper bound, because the bus did
    ///   not report which messages it delivered.
    mutating func dropped(_ count: UInt64, isBound: Bool = false) {
        if isBound {
            excused = excused &+ count
        } else {
            last = (last.sequence &+ count, 0)
            anew = anew.map { $0 &+ count }
        }
    }

    /// Allows notifications received until now to arrive again, in their order. The service can't know how much of a
    /// channel's content was read.
    mutating func mayRepeat() {
        // Numbers assigned before a count that may have begun anew can't be compared with that count.
        heard = anew == nil ? (last.sequence, greatestSerial) : nil
    }

    /// Allows the next service to continue the count, or to begin a new one.
    mutating func mayBeginAnew() {
        anew = 0
        heard = nil
        // Its serials may have begun anew as well, so earlier serials can't identify repetitions.
        greatestSerial = 0
    }

    /// Resets the check for a service that counts from one.
    mutating func reset() {
        last = (0, 0)
        greatestSerial = 0
        excused = 0
        anew = nil
        heard = nil
    }
}
