// SPDX-License-Identifier: Apache-2.0
/// How a client wants to be served, by its own word.
public struct ClientOptions: Equatable, Sendable {
    /// Whether it gets its notifications together, as many as are due at a time (F1), also when that is one.
    public var batches = false
    /// What it wants to be told about each notification, where it gets them together or by its channel (P1).
    public var details: Details = []

    public init() {}
}

/// What a client says of its options at a time; what it does not mention stays as it is.
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
