// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding and decoding of the options of the method ``SetClientOptions``.
extension ClientOptionsChange {
    /// Reads the options, the next `a{sv}` of the arguments.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "batches": batches = try option.boolean()
            case "details": details = Details(try option.choices() as [Detail])
            default: throw option.unknown
            }
        }
    }

    /// Appends the options as an `a{sv}`, without unchanged options.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if let batches { writer.entry("batches", batches) }
            guard let details else { return }
            writer.dictEntry { writer in
                writer.append("details")
                // Written here and not as a property list, which would encode an empty array as `av`. The type must be
                // `as`.
                writer.variant(of: "as") { writer in
                    writer.array(of: "s") { writer in for detail in details.all { writer.append(detail.rawValue) } }
                }
            }
        }
    }
}
