import DBus
import NotificationCore

/// The options of `SetClientOptions` on the wire.
extension ClientOptionsChange {
    /// Reads the `a{sv}` that comes next.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "batches": batches = try option.boolean()
            default: throw option.unknown
            }
        }
    }

    /// Appends the `a{sv}`; what is not mentioned is left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if let batches { writer.entry("batches", batches) }
        }
    }
}
