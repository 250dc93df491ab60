/// How a client wants to be served, by its own word.
public struct ClientOptions: Equatable, Sendable {
    /// Whether it gets its notifications together, as many as are due at a time (F1), also when that is one.
    public var batches = false

    public init() {}
}

/// What a client says of its options at a time; what it does not mention stays as it is.
public struct ClientOptionsChange: Equatable, Sendable {
    public var batches: Bool?

    public init(batches: Bool? = nil) {
        self.batches = batches
    }

    func apply(to options: inout ClientOptions) {
        if let batches { options.batches = batches }
    }
}
