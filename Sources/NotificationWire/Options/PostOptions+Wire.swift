import DBus
import NotificationCore

/// The options of `Post` on the wire.
extension PostOptions {
    /// Reads the `a{sv}` that comes next.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "deliver-immediately": deliverImmediately = try option.boolean()
            case "posting-style": postingStyle = try option.choice()
            case "coalesce-on": coalescing = Set(try option.choices())
            default: throw option.unknown
            }
        }
    }

    /// Appends the `a{sv}`; what is as by default is left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if deliverImmediately { writer.entry("deliver-immediately", true) }
            if postingStyle != .now { writer.entry("posting-style", postingStyle.rawValue) }
            if !coalescing.isEmpty {
                writer.dictEntry { writer in
                    writer.append("coalesce-on")
                    writer.variant(of: "as") { writer in
                        writer.array(of: "s") { writer in
                            for key in CoalescingKey.allCases where coalescing.contains(key) {
                                writer.append(key.rawValue)
                            }
                        }
                    }
                }
            }
        }
    }
}
