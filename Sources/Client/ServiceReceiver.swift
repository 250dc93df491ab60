// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The receiver of the reports of a ``ServiceSession``. The session calls it on its own thread; the calls must not
/// block.
public protocol ServiceReceiver: Sendable {
    /// - Parameter keys: the registrations that the notification matched, according to the service.
    func received(_ notification: ArrivedNotification, for keys: [RegistrationKey])
    func stateChanged(_ state: ConnectionState)
    func mayHaveMissed(_ gap: Gap)
    /// Reports posts that failed and whose outcome nobody awaits: there is no service, or it has refused them.
    ///
    /// - Parameter error: the error of the last of these posts.
    func lostPosts(_ count: Int, because error: ServiceError)
    /// Reports `count` posts that may be lost: the service or the connection ended before it confirmed them. These are
    /// posts whose outcome nobody awaits; posts that are reported by other calls are not included.
    func mayHaveLostPosts(_ count: Int, because reason: String)
    func registrationRefused(_ key: RegistrationKey, because error: ServiceError)
    /// Reports that the service refuses the details that the program requested (P1).
    func detailsRefused(because error: ServiceError)
    func suspensionChanged(_ isSuspended: Bool, cause: String)
    /// Reports the transport of posts and notifications from now on, which may be the same as before.
    ///
    /// - Parameter reason: the reason why the wished transport is not in use.
    func transportChanged(to transport: Transport, because reason: String?)
    /// Reports that the interest of other programs has changed since the program asked with ``FollowInterest`` (G4).
    func interestChanged()
    /// Reports that a value was removed since the program asked with ``FollowValues`` (G5).
    func valuesRemoved()
}

/// Default implementations of optional reports.
extension ServiceReceiver {
    public func transportChanged(to transport: Transport, because reason: String?) {}
    public func mayHaveLostPosts(_ count: Int, because reason: String) {
        lostPosts(count, because: .disconnected(reason))
    }
    public func interestChanged() {}
    public func valuesRemoved() {}
}
