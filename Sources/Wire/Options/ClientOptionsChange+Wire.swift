// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding of the options of `SetClientOptions`.
extension ClientOptionsChange {
    /// Reads the next `a{sv}`.
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

    /// Appends the `a{sv}`; unchanged options are left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if let batches { writer.entry("batches", batches) }
            guard let details else { return }
            writer.dictEntry { writer in
                writer.append("details")
                // An empty array has the type `as`, too; as a property list it would be an `av`.
                writer.variant(of: "as") { writer in
                    writer.array(of: "s") { writer in for detail in details.all { writer.append(detail.rawValue) } }
                }
            }
        }
    }
}
