// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// What a ``ServiceSession`` reports. Called on its thread; must not block.
public protocol ServiceReceiver: Sendable {
    /// - Parameter keys: the registrations that it matched, as the service says.
    func received(_ notification: ArrivedNotification, for keys: [RegistrationKey])
    func stateChanged(_ state: ConnectionState)
    func mayHaveMissed(_ gap: Gap)
    /// Posts of which nobody waits for the outcome were not made: there is no service, or it has refused them.
    ///
    /// - Parameter error: that of the last one.
    func lostPosts(_ count: Int, because error: ServiceError)
    /// The service has ended, or the connection to it, before it could be known that it has taken so many posts, of which
    /// nobody waits for the outcome. Posts that are told otherwise are not among them.
    func mayHaveLostPosts(_ count: Int, because reason: String)
    func registrationRefused(_ key: RegistrationKey, because error: ServiceError)
    /// The service does not tell what the program wants to be told besides (P1).
    func detailsRefused(because error: ServiceError)
    func suspensionChanged(_ isSuspended: Bool, cause: String)
    /// Posts and notifications go this way from now on, or still.
    ///
    /// - Parameter reason: why it is not the way that was wished for.
    func transportChanged(to transport: Transport, because reason: String?)
    /// Others want other names than when the program asked with ``FollowInterest`` (G4).
    func interestChanged()
    /// A value has gone since the program asked with ``FollowValues`` (G5).
    func valuesRemoved()
}

/// For those that need not know.
extension ServiceReceiver {
    public func transportChanged(to transport: Transport, because reason: String?) {}
    public func mayHaveLostPosts(_ count: Int, because reason: String) {
        lostPosts(count, because: .disconnected(reason))
    }
    public func interestChanged() {}
    public func valuesRemoved() {}
}
