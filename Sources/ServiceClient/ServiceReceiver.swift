import NotificationWire

/// What a ``ServiceSession`` reports. Called on its thread; must not block.
public protocol ServiceReceiver: Sendable {
    /// - Parameter keys: the registrations that it matched, as the service says.
    func received(_ notification: ArrivedNotification, for keys: [RegistrationKey])
    func stateChanged(_ state: ConnectionState)
    func mayHaveMissed(_ gap: Gap)
    /// A post of which nobody waits for the outcome was not made.
    func lostPost(because error: ServiceError)
    func registrationRefused(_ key: RegistrationKey, because error: ServiceError)
    func suspensionChanged(_ isSuspended: Bool, cause: String)
}
