import DBus
import NotificationWire

/// What comes from the bus and the service.
extension ServiceSession {
    func handle(_ message: Message) -> Bool {
        if let change = OwnerChange(message) {
            if change.concerns(Wire.busName) { ownerChanged(to: change.newOwner) }
            return true
        }
        guard message.kind == .signal, message.hasInterface(Wire.interface) else { return false }
        guard message.sender == owner, owner != nil else { return true }
        do throws(BusError) {
            if let signal = try NotificationSignal(message) {
                received(signal)
            } else if let signal = try DroppedSignal(message) {
                sequence.dropped(signal.count)
                receiver.mayHaveMissed(.dropped(count: signal.count, reason: signal.reason))
            } else if let signal = try SuspensionChangedSignal(message) {
                receiver.suspensionChanged(signal.isSuspended, cause: signal.cause)
            }
        } catch {
            // Not one of version 1 of the interface: what it said is lost.
            receiver.mayHaveMissed(.undecodable(error.description))
        }
        return true
    }

    private func received(_ signal: NotificationSignal) {
        switch sequence.check(sequence: signal.sequence, serial: signal.serial) {
        case .next: break
        case .missing(let count): receiver.mayHaveMissed(.missing(count: count))
        case .repeated: return
        }
        receiver.received(signal, for: signal.observers.compactMap { registrations.key(of: $0) })
    }
}

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
