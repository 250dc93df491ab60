// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The delegate of a ``ServiceSession``: it receives notifications, losses and state changes. The client library, the
/// command and the bridge have one each.
///
/// The session calls it on its own thread; the calls must not block.
public protocol ServiceReceiver: Sendable {
    /// Delivers a notification.
    ///
    /// - Parameter keys: the registrations that the notification matched, according to the service.
    func received(_ notification: ArrivedNotification, for keys: [RegistrationKey])
    /// Reports the state of the connection to the bus and the service.
    func stateChanged(_ state: ConnectionState)
    /// Reports that notifications may have been lost.
    func mayHaveMissed(_ gap: Gap)
    /// Reports failed posts without a completion: there is no service, or it has refused them.
    ///
    /// - Parameter error: the error of the last of these posts.
    func lostPosts(_ count: Int, because error: ServiceError)
    /// Reports `count` posts without a completion that may be lost: the service or the connection ended before it
    /// confirmed them. Posts that are reported by other calls are not included.
    func mayHaveLostPosts(_ count: Int, because reason: String)
    /// Reports that the service refused a registration, or has revoked it by its policy.
    func registrationRefused(_ key: RegistrationKey, because error: ServiceError)
    /// Reports that the service refuses the details that the program requested (P1): the information about each
    /// notification beside its content, such as its poster or time. Notifications then arrive without them.
    func detailsRefused(because error: ServiceError)
    /// Reports that the service suspended or resumed this program.
    ///
    /// - Parameter cause: the raw value of a `SuspensionCause`.
    func suspensionChanged(_ isSuspended: Bool, cause: String)
    /// Reports the transport of posts and notifications from now on, which may be the same as before.
    ///
    /// - Parameter reason: the reason why the requested transport is not in use; nil if it is.
    func transportChanged(to transport: Transport, because reason: String?)
    /// Reports that the interest of other programs has changed since the program asked with ``FollowInterest`` (G4).
    func interestChanged()
    /// Reports that a value was removed since the program asked with ``FollowValues`` (G5).
    func valuesRemoved()
}

/// Default implementations of optional reports: nothing, or the report of a possible loss as a loss.
extension ServiceReceiver {
    public func transportChanged(to transport: Transport, because reason: String?) {}
    public func mayHaveLostPosts(_ count: Int, because reason: String) {
        lostPosts(count, because: .disconnected(reason))
    }
    public func interestChanged() {}
    public func valuesRemoved() {}
}
