// SPDX-License-Identifier: Apache-2.0
/// The state of a client's connection to the bus and the service, as far as the client knows it.
public enum ConnectionState: Hashable, Sendable {
    /// The service has been asked nothing yet, or its first answer is awaited.
    case connecting
    /// The service has answered, and has received the program's observers and settings.
    case connected
    /// There is no service on the bus, and the bus can't start it. Observers are registered when a service appears.
    case serviceUnavailable(String)
    /// A program that is no notification center owns the service's name. Observers are registered when the name has
    /// another owner.
    case nameTaken(String)
    /// The service does not answer; the client waits. The cause is one of these:
    ///
    /// - The owner of the service's name did not answer posts or registrations within some seconds.
    /// - The service has been overloaded for longer.
    /// - The bus has been starting the service for some seconds.
    case notAnswering(String)
    /// There is no connection to the bus. The client tries again with the next post. While it has observers, it also
    /// tries again at growing intervals of up to 30 seconds.
    case disconnected(String)
}

/// The reason why notifications may have been missed (E3, S4).
public enum Gap: Hashable, Sendable {
    /// Another process has become the service. It takes over the messages queued for this program as far as possible.
    /// Unless the former service ended in order, messages in flight may be lost.
    case serviceChanged
    /// The sequence of this program's notifications lacks `count` numbers, so as many notifications are lost.
    case missing(count: UInt64)
    /// The service reports the loss of at most `count` notifications, because this program did not read them in time or
    /// for another `reason`. With the reason `service-restarted`, some or all of them may have arrived.
    case dropped(count: UInt64, reason: String)
    /// The thread or queue of some observers did not run in time, so that `count` notifications exceeded the limits of
    /// this process (T2).
    case overflow(count: UInt64)
    /// A message of the service could not be decoded.
    case undecodable(String)
}
