// SPDX-License-Identifier: Apache-2.0
/// A resource that clients make the service use. Each has a limit for all connections together, and is charged to the
/// account of the connection (E4).
enum Resource: Int, CaseIterable {
    /// The number of clients: connections with observers, options or other state of their own.
    case clients
    /// The number of registrations.
    case observers
    /// The registrations with their names and objects, in bytes.
    case observerBytes
    /// Notifications that wait for a client, with their lists of observers, in bytes.
    case queuedBytes
    /// The state of minimum intervals (``IntervalQueue``), in bytes. Its limit is that of ``queuedBytes``.
    case intervalBytes
    /// Posts that wait in the queue of their poster, in bytes.
    case queuedPostBytes
    /// Pending replies: they wait for a caller that does not read, in bytes.
    case answerBytes
    /// Messages that are sent and not acknowledged, in bytes.
    case inFlightBytes
    /// Calls in the call queue, in bytes.
    case waitingCallBytes
    /// Posts of which a part has arrived on a channel, in bytes. Their limit is that of ``waitingCallBytes``.
    case partialPostBytes
    /// The number of retained values.
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
        case .waitingCallBytes, .partialPostBytes: .waitingCallBytes
        case .retained: .retained
        case .retainedBytes: .retainedBytes
        }
    }
}

extension Resource {
    /// The memory of a client in the tables of the service, without its registrations, in bytes.
    private static let clientSize = 2048

    /// Returns the memory that an amount takes, in bytes. It is 0 where another resource counts that memory, or the bus
    /// has it.
    func memory(_ amount: Int) -> Int {
        switch self {
        case .clients: amount * Self.clientSize
        case .observerBytes, .queuedBytes, .intervalBytes, .queuedPostBytes, .answerBytes, .waitingCallBytes,
            .partialPostBytes, .retainedBytes:
            amount
        case .observers, .retained, .inFlightBytes: 0
        }
    }
}

/// The amounts of all resources that a connection, an account, or the service uses. An amount is a number or bytes, as
/// its ``Resource`` states.
struct Usage: Equatable {
    /// By the raw value of ``Resource``.
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

    /// The memory of all but waiting notifications, in bytes. Retained values of departed posters count here, although
    /// they can be reclaimed.
    var lastingMemory: Int {
        Resource.clients.memory(self[.clients]) + self[.observerBytes] + self[.queuedPostBytes] + self[.answerBytes]
            + self[.waitingCallBytes] + self[.partialPostBytes] + self[.retainedBytes]
    }
    /// The memory of waiting notifications, in bytes. It can be reclaimed: the oldest notifications are dropped.
    var waitingMemory: Int { self[.queuedBytes] + self[.intervalBytes] }

    static func += (left: inout Usage, right: Usage) { left.amounts &+= right.amounts }
    static func -= (left: inout Usage, right: Usage) { left.amounts &-= right.amounts }
}
