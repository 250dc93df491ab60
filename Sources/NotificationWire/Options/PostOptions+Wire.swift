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

    /// What is not as by default, as entries of an `a{sv}`.
    var entries: [(key: String, value: PropertyList)] {
        var entries: [(key: String, value: PropertyList)] = []
        if deliverImmediately { entries.append(("deliver-immediately", .boolean(true))) }
        if postingStyle != .now { entries.append(("posting-style", .string(postingStyle.rawValue))) }
        if !coalescing.isEmpty {
            let keys = CoalescingKey.allCases.filter { coalescing.contains($0) }
            entries.append(("coalesce-on", .array(keys.map { .string($0.rawValue) })))
        }
        return entries
    }

    /// Appends the `a{sv}`; what is as by default is left out.
    public func append(to writer: inout MessageWriter) {
        UserInfoCoding.append(entries, to: &writer)
    }
}
