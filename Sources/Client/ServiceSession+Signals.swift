// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// Incoming messages of the bus and the service: notifications, control signals, and changes of the name's owner.
extension ServiceSession {
    /// Handles a message of the connection to the bus.
    ///
    /// - Returns: whether the message was for the session.
    func handle(_ message: Message) -> Bool {
        if let change = OwnerChange(message) {
            if change.concerns(Wire.busName) { ownerChanged(to: change.newOwner) }
            return true
        }
        guard message.kind == .signal, message.hasInterface(Wire.interface) else { return false }
        // Any program can send such a signal; only those of the service's owners are trusted (E6).
        guard let sender = message.sender, owners.trusts(sender) else {
            checkOwner()
            return true
        }
        // The service wrote everything in the channel before this signal, so it is handled first.
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
        // Incoming traffic is a reason to request a channel.
        lookForChannel()
        return true
    }

    /// Handles a report of losses. A report with the reason `not-allowed` means revoked registrations, and no loss.
    func take(_ signal: DroppedSignal) {
        if signal.reason == DroppedSignal.notAllowed { return revoked(signal.observers) }
        // The service reports possible losses of an ended channel, because it can't know that the program read all of
        // it. Such a report is ignored, except while another channel is requested: it may concern that one.
        if signal.reason == DropReason.channelEnded.rawValue, channels.wasReadToEnd {
            guard case .asking = channels.phase else { return }
            return deferLosses(signal)
        }
        announce(signal)
    }

    /// Reports a loss to the program.
    func announce(_ signal: DroppedSignal) {
        sequence.dropped(signal.count, isBound: signal.isBound)
        receiver.mayHaveMissed(.dropped(count: signal.count, reason: signal.reason))
    }

    /// Records and reports that the service suspended or resumed the program.
    func take(_ signal: SuspensionChangedSignal) {
        isSuspendedByService = signal.isSuspended
        receiver.suspensionChanged(signal.isSuspended, cause: signal.cause)
    }

    /// Handles observers that the service's policy no longer allows.
    private func revoked(_ observers: [ObserverID]) {
        let error = ServiceError.refused(
            BusError(.notAllowed, message: "the policy of the service no longer allows this observer"))
        for id in observers {
            if let key = registrations.revoked(id) { receiver.registrationRefused(key, because: error) }
        }
    }

    /// Passes a notification to the receiver, unless it is a duplicate. Missing sequence numbers are reported first.
    func received(_ notification: ArrivedNotification) {
        switch sequence.check(sequence: notification.sequence, serial: notification.serial) {
        case .next: break
        case .missing(let count):
            // The hole proves that the undecided losses of an ended channel are real.
            if let signal = channels.takePendingLosses() {
                receiver.mayHaveMissed(.dropped(count: signal.count, reason: signal.reason))
            } else {
                receiver.mayHaveMissed(.missing(count: count))
            }
        case .repeated: return
        }
        receiver.received(notification, for: registrations.keys(of: notification.observers))
    }
}
