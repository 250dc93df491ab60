import Collections
import NotificationCore

/// What the service is told of an observer. Observers of the program with the same key share one registration there.
public struct RegistrationKey: Hashable, Sendable {
    /// Nil means any.
    public let name: ExactText?
    /// Nil means any.
    public let object: ExactText?
    public let options: ObserverOptions

    public init(name: ExactText?, object: ExactText?, options: ObserverOptions) {
        self.name = name
        self.object = object
        self.options = options
    }
}
