// SPDX-License-Identifier: Apache-2.0
/// A kind of resource that clients make the service hold, with a unit of its own (E4).
enum Resource: Int, CaseIterable {
    /// Clients: connections with observers, options or other state of their own in the center.
    case clients
    case observers
    /// Registrations with their names and objects, in bytes.
    case observerBytes
    /// Notifications that wait for a client, with the lists of its observers, in bytes.
    case queuedBytes
    /// The state of minimum intervals, in bytes. It counts with the waiting notifications.
    case intervalBytes
    /// Posts in their poster's queue, in bytes.
    case queuedPostBytes
    /// Replies that are kept for a caller that does not read, in bytes.
    case answerBytes
    /// Sent and unconfirmed messages, in bytes.
    case inFlightBytes
    /// Calls that wait to be served, in bytes.
    case waitingCallBytes
    /// Posts that have partly arrived on a channel, in bytes. They count with the waiting calls.
    case partBytes
    /// Retained values.
    case retained
    /// Retained values, in bytes.
    case retainedBytes

    /// The key of the limit for all connections together.
    var limit: Limits.Key {
        switch self {
        case .clients: .clients
        case .observers: .observers
        case .observerBytes: .observerBytes
        case .queuedBytes, .intervalBytes: .queuedBytes
        case .queuedPostBytes: .queuedPostBytes
        case .answerBytes: .answerBytes
        case .inFlightBytes: .inFlightBytes
        case .waitingCallBytes, .partBytes: .waitingCallBytes
        case .retained: .retained
        case .retainedBytes: .retainedBytes
        }
    }
}

extension Resource {
    /// The memory of a client besides its registrations, in bytes: its entries in tables.
    private static let clientSize = 2048

    /// The memory of an amount, in bytes; 0 where another resource counts it, or the bus holds it.
    func memory(_ amount: Int) -> Int {
        switch self {
        case .clients: amount * Self.clientSize
        case .observerBytes, .queuedBytes, .intervalBytes, .queuedPostBytes, .answerBytes, .waitingCallBytes,
            .partBytes, .retainedBytes:
            amount
        case .observers, .retained, .inFlightBytes: 0
        }
    }
}

/// An amount of each resource.
struct Usage: Equatable {
    private var amounts = SIMD16<Int>()

    subscript(resource: Resource) -> Int {
        get { amounts[resource.rawValue] }
        set { amounts[resource.rawValue] = newValue }
    }

    var isZero: Bool { amounts == SIMD16() }

    /// Whether nothing but retained values is used.
    var isOnlyRetained: Bool {
        var rest = self
        rest[.retained] = 0
        rest[.retainedBytes] = 0
        return rest.isZero
    }

    /// The memory of resources that can't be reclaimed, in bytes.
    var lastingMemory: Int {
        Resource.clients.memory(self[.clients]) + self[.observerBytes] + self[.queuedPostBytes] + self[.answerBytes]
            + self[.waitingCallBytes] + self[.partBytes] + self[.retainedBytes]
    }
    /// The memory of waiting notifications, in bytes.
    var waitingMemory: Int { self[.queuedBytes] + self[.intervalBytes] }

    static func += (left: inout Usage, right: Usage) { left.amounts &+= right.amounts }
    static func -= (left: inout Usage, right: Usage) { left.amounts &-= right.amounts }
}
