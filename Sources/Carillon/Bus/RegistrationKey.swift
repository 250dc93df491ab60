import Collections
import NotificationCore

/// What the service is told of an observer. Observers of the program with the same key share one registration there.
struct RegistrationKey: Hashable, Sendable {
    /// Nil means any.
    let name: ExactText?
    /// Nil means any.
    let object: ExactText?
    let options: ObserverOptions
}
