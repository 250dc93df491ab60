// SPDX-License-Identifier: Apache-2.0
/// Where a client stands with the bus and the service, as far as it knows.
public enum ConnectionState: Hashable, Sendable {
    /// Nothing was asked of the service yet, or its answer is awaited.
    case connecting
    /// The service has everything that the program asked for.
    case connected
    /// There is no service on the bus, and the bus can't start it. Observers are registered when one comes.
    case serviceUnavailable(String)
    /// The service's name is owned by a program that is no notification center. Observers are registered when the name
    /// has another owner.
    case nameTaken(String)
    /// The owner of the service's name did not answer posts or registrations within some seconds, or has been overloaded for
    /// longer, or the bus has been starting the service for some seconds. The client waits.
    case notAnswering(String)
    /// There is no connection to the bus. It is tried again, at growing intervals of up to 30 seconds, where there
    /// are observers, and with the next post.
    case disconnected(String)
}

/// Why notifications may have been missed (E3, S4).
public enum Gap: Hashable, Sendable {
    /// The service is another process than before. What was held for this program was taken over where that was
    /// possible; what was on its way between the two may be lost, and is not when the one before ended in order.
    case serviceChanged
    /// So many numbers are missing in the count of this program's notifications.
    case missing(count: UInt64)
    /// The service says that it lost so many at most: as this program did not read them in time, or for another `reason`. With
    /// `service-restarted` some or all of them may have arrived.
    case dropped(count: UInt64, reason: String)
    /// The thread or queue of some observers did not run in time: so many waited too long in this process (T2).
    case overflow(count: UInt64)
    /// A message of the service was not understood.
    case undecodable(String)
}
