// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// Messages from the bus and the service.
extension ServiceSession {
    func handle(_ message: Message) -> Bool {
        if let change = OwnerChange(message) {
            if change.concerns(Wire.busName) { ownerChanged(to: change.newOwner) }
            return true
        }
        guard message.kind == .signal, message.hasInterface(Wire.interface) else { return false }
        // Signals of other senders are not trusted (E6).
        guard let sender = message.sender, owners.believes(sender) else {
            doubtOwner()
            return true
        }
        drainChannel()
        do throws(BusError) {
            if let notifications = try ArrivedNotification.all(in: message, like: &recent) {
                for notification in notifications { received(notification) }
            } else if let signal = try DroppedSignal(message) {
                take(signal)
            } else if let signal = try SuspensionChangedSignal(message) {
                take(signal)
            } else if let signal = try PostsRefusedSignal(message) {
                outbox.refused(Int(signal.count), isEnding: sender != owner)
                receiver.lostPosts(Int(signal.count), because: ServiceError(signal.error))
            } else if try InterestChangedSignal(message) != nil {
                receiver.interestChanged()
            } else if try ValuesRemovedSignal(message) != nil {
                receiver.valuesRemoved()
            }
        } catch {
            // The signal does not match version 1 of the interface, so its content is lost.
            receiver.mayHaveMissed(.undecodable(error.description))
        }
        lookForChannel()
        return true
    }

    func take(_ signal: DroppedSignal) {
        if signal.reason == DroppedSignal.notAllowed { return revoked(signal.observers) }
        // The service can't know that the program read everything after the end of the channel.
        if signal.reason == DropReason.channelEnded.rawValue, channels.wasReadToEnd {
            guard case .asking = channels.phase else { return }
            return doubt(signal)
        }
        announce(signal)
    }

    /// Reports a loss to the program.
    func announce(_ signal: DroppedSignal) {
        sequence.dropped(signal.count, isBound: signal.isBound)
        receiver.mayHaveMissed(.dropped(count: signal.count, reason: signal.reason))
    }

    func take(_ signal: SuspensionChangedSignal) {
        isSuspendedByService = signal.isSuspended
        receiver.suspensionChanged(signal.isSuspended, cause: signal.cause)
    }

    private func revoked(_ observers: [ObserverID]) {
        let error = ServiceError.refused(
            BusError(.notAllowed, message: "the policy of the service no longer allows this observer"))
        for id in observers {
            if let key = registrations.revoked(id) { receiver.registrationRefused(key, because: error) }
        }
    }

    func received(_ notification: ArrivedNotification) {
        switch sequence.check(sequence: notification.sequence, serial: notification.serial) {
        case .next: break
        case .missing(let count):
            if let signal = channels.takeDoubtful() {
                receiver.mayHaveMissed(.dropped(count: signal.count, reason: signal.reason))
            } else {
                receiver.mayHaveMissed(.missing(count: count))
            }
        case .repeated: return
        }
        receiver.received(notification, for: registrations.keys(of: notification.observers))
    }
}
