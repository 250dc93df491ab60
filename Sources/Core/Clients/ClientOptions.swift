// SPDX-License-Identifier: Apache-2.0
/// The options that a client has set for all messages to it.
public struct ClientOptions: Equatable, Sendable {
    /// Whether the client gets its notifications in batches: all that are due at a time in one message (F1). A single
    /// notification is a batch too.
    public var batches = false
    /// The details that the client gets with each notification in batches and on its channel, such as the process of
    /// the poster (P1).
    public var details: Details = []

    public init() {}
}

/// A change of a client's options; nil leaves an option as it is.
public struct ClientOptionsChange: Equatable, Sendable {
    public var batches: Bool?
    public var details: Details?

    public init(batches: Bool? = nil, details: Details? = nil) {
        self.batches = batches
        self.details = details
    }

    func apply(to options: inout ClientOptions) {
        if let batches { options.batches = batches }
        if let details { options.details = details }
    }
}
