// SPDX-License-Identifier: Apache-2.0
/// The options with which a client asked to be served.
public struct ClientOptions: Equatable, Sendable {
    /// Whether the client gets all notifications that are due at a time in one batch (F1), even a single one.
    public var batches = false
    /// The details that the client wants with each notification, in batches and on its channel (P1).
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
