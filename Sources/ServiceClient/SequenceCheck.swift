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

    mutating func check(sequence: UInt64, serial: UInt64) -> Outcome {
        let before = last
        last = (sequence, serial)
        if sequence == before.sequence &+ 1 { return .next }
        if sequence == before.sequence, serial == before.serial { return .repeated }
        // A smaller number is a count that began anew.
        return sequence > before.sequence ? .missing(count: sequence - before.sequence - 1) : .next
    }

    mutating func dropped(_ count: UInt64) {
        last = (last.sequence &+ count, 0)
    }

    /// The next service counts from one.
    mutating func reset() {
        last = (0, 0)
    }
}
