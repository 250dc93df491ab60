// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

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
            case "details": details = Details(try option.choices() as [Detail])
            default: throw option.unknown
            }
        }
    }

    /// Appends the `a{sv}`; what is not mentioned is left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if let batches { writer.entry("batches", batches) }
            guard let details else { return }
            writer.dictEntry { writer in
                writer.append("details")
                // Also an empty one is of texts, which it would not be as a property list.
                writer.variant(of: "as") { writer in
                    writer.array(of: "s") { writer in for detail in details.all { writer.append(detail.rawValue) } }
                }
            }
        }
    }
}
