// SPDX-License-Identifier: Apache-2.0
/// What clients make the service hold, each kind in a unit of its own (E4).
enum Resource: Int, CaseIterable {
    /// Connections that registered for something.
    case clients
    case observers
    /// Registrations with their names and objects, in bytes.
    case observerBytes
    /// Notifications that wait for a client, with the lists of its observers, in bytes.
    case queuedBytes
    /// The state of minimum intervals, in bytes. It counts with the notifications that wait.
    case intervalBytes
    /// Posts that wait in their poster's queue, in bytes.
    case queuedPostBytes
    /// Answers that are kept for a caller that does not read, in bytes.
    case answerBytes
    /// What is on its way and not confirmed, in bytes.
    case inFlightBytes
    /// Calls that wait to be served, in bytes.
    case waitingCallBytes
    /// Posts of which a part has come on a channel, in bytes. They count with the calls that wait.
    case partBytes
    /// Values that are kept.
    case retained
    /// The same, in bytes.
    case retainedBytes

    /// The limit of what all together may use.
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
    /// The memory of a client besides what it registered, in bytes: its entries in tables.
    private static let clientSize = 2048

    /// The memory that so much of it takes, in bytes; 0 where that is counted as another resource, or is held by the bus.
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

    /// Whether there is nothing but values that are kept.
    var isOnlyRetained: Bool {
        var rest = self
        rest[.retained] = 0
        rest[.retainedBytes] = 0
        return rest.isZero
    }

    /// The memory of what can't be taken back, in bytes.
    var lastingMemory: Int {
        Resource.clients.memory(self[.clients]) + self[.observerBytes] + self[.queuedPostBytes] + self[.answerBytes]
            + self[.waitingCallBytes] + self[.partBytes] + self[.retainedBytes]
    }
    /// That of what waits for clients, in bytes.
    var waitingMemory: Int { self[.queuedBytes] + self[.intervalBytes] }

    static func += (left: inout Usage, right: Usage) { left.amounts &+= right.amounts }
    static func -= (left: inout Usage, right: Usage) { left.amounts &-= right.amounts }
}
