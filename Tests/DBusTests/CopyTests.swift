import DBus
import Foundation
import Testing

/// `copyValue`, by which userInfo passes through the service with its types unchanged (N3).
@Suite("N3: values copied from message to message", .timeLimit(.minutes(20)))
struct CopyTests {
    @Test("N3: values of every type are copied unchanged")
    func everyType() throws {
        let original = Sample.signal { Self.writeEverything(to: &$0) }
        let copy = try copyAll(original)
        #expect(copy.signature == original.signature)
        var (left, right) = (MessageReader(original), MessageReader(copy))
        #expect(try dump(&left) == dump(&right))
        // And a copy of the copy, to be sure that nothing refers to the original.
        let second = try copyAll(copy)
        var (third, fourth) = (MessageReader(original), MessageReader(second))
        #expect(try dump(&third) == dump(&fourth))
    }

    @Test(
        "N3: empty arrays keep the type of their elements",
        arguments: [
            "y", "b", "n", "q", "i", "u", "x", "t", "d", "s", "o", "g", "h", "v", "as", "ay", "aai", "(i)",
            "(a{sv}(x)v)",
            "{sv}", "{ss}", "{ta(bd)}", "a{sv}", "aa{oh}",
        ] as [Signature])
    func emptyArrays(element: Signature) throws {
        let original = Sample.signal { writer in
            writer.array(of: element) { _ in }
            writer.variant(of: Signature(rawValue: "a" + element.rawValue)!) { $0.array(of: element) { _ in } }
            writer.array(of: Signature(rawValue: "a" + element.rawValue)!) { writer in
                writer.array(of: element) { _ in }
            }
        }
        let copy = try copyAll(original)
        #expect(copy.signature == original.signature)
        var (left, right) = (MessageReader(original), MessageReader(copy))
        #expect(try dump(&left) == dump(&right))
    }

    @Test("A copied file descriptor is one of its own")
    func descriptors() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let readEnd = FileDescriptor(adopting: ends[0])
        var original: Message?
        do {
            let writeEnd = FileDescriptor(adopting: ends[1])
            original = Sample.signal { $0.append(writeEnd) }
        }
        let copy = try copyAll(try #require(original))
        original = nil
        var reader = MessageReader(copy)
        let descriptor = try reader.read(FileDescriptor.self)
        #expect(write(descriptor.rawValue, "x", 1) == 1)
        var byte: UInt8 = 0
        #expect(read(readEnd.rawValue, &byte, 1) == 1)
    }

    @Test("The deepest nesting that D-Bus allows is copied")
    func deep() throws {
        func nest(_ depth: Int, _ writer: inout MessageWriter) {
            if depth == 0 { return writer.append("bottom") }
            writer.variant(of: depth == 1 ? "s" : "v") { nest(depth - 1, &$0) }
        }
        let original = Sample.signal { nest(64, &$0) }
        let copy = try copyAll(original)
        var reader = MessageReader(copy)
        for _ in 0..<64 { reader = try reader.readContainer(.variant) }
        #expect(try reader.readString() == "bottom")
    }

    // MARK: -

    private func copyAll(_ message: Message) throws -> Message {
        let copy = Sample.signal()
        var reader = MessageReader(message)
        var writer = MessageWriter(copy)
        while !reader.isAtEnd { writer.copyValue(from: &reader) }
        return copy
    }

    private static func writeEverything(to writer: inout MessageWriter) {
        writer.append(UInt8.max)
        writer.append(true)
        writer.append(Int16.min)
        writer.append(UInt16.max)
        writer.append(Int32.min)
        writer.append(UInt32.max)
        writer.append(Int64.min)
        writer.append(UInt64.max)
        writer.append(-Double.leastNonzeroMagnitude)
        writer.append("Größe 🔔")
        writer.append("")
        writer.append(ObjectPath("/a/b"))
        writer.append(Signature("a{sv}"))
        writer.append(Signature(""))
        writer.append(fixedArray: [UInt8](repeating: 3, count: 70_000))
        writer.append(fixedArray: [Int64.min, .max])
        writer.array(of: "b") { writer in
            writer.append(true)
            writer.append(false)
            writer.append(true)
        }
        writer.array(of: "s") { writer in
            writer.append("a")
            writer.append("")
        }
        writer.structure { writer in
            writer.append(UInt8(1))
            writer.array(of: "(xd)") { writer in
                for index in 0..<3 {
                    writer.structure { writer in
                        writer.append(Int64(index))
                        writer.append(Double(index) / 2)
                    }
                }
            }
            writer.variant(of: "v") { $0.variant(of: "y") { $0.append(UInt8(9)) } }
        }
        writer.array(of: "{sv}") { writer in
            writer.entry("double", Double.nan)
            writer.entry("text", "value")
            writer.dictEntry { writer in
                writer.append("nested")
                writer.variant(of: "a{sv}") { $0.array(of: "{sv}") { $0.entry("inner", Int16(-3)) } }
            }
        }
        writer.array(of: "{ta(so)}") { writer in
            writer.dictEntry { writer in
                writer.append(UInt64(5))
                writer.array(of: "(so)") { writer in
                    writer.structure { writer in
                        writer.append("s")
                        writer.append(ObjectPath("/"))
                    }
                }
            }
        }
    }

    /// All that is in a message, as text: types, values, nesting.
    private func dump(_ reader: inout MessageReader) throws -> String {
        var parts: [String] = []
        while !reader.isAtEnd {
            let signature = reader.nextSignature
            switch reader.nextType {
            case .byte: parts.append("y\(try reader.read(UInt8.self))")
            case .boolean: parts.append("b\(try reader.read(Bool.self))")
            case .int16: parts.append("n\(try reader.read(Int16.self))")
            case .uint16: parts.append("q\(try reader.read(UInt16.self))")
            case .int32: parts.append("i\(try reader.read(Int32.self))")
            case .uint32: parts.append("u\(try reader.read(UInt32.self))")
            case .int64: parts.append("x\(try reader.read(Int64.self))")
            case .uint64: parts.append("t\(try reader.read(UInt64.self))")
            case .double: parts.append("d\(try reader.read(Double.self).bitPattern)")
            case .string: parts.append("s\(try reader.readString())")
            case .objectPath: parts.append("o\(try reader.read(ObjectPath.self))")
            case .signature: parts.append("g\(try reader.read(Signature.self))")
            case .unixFD:
                parts.append("h")
                reader.skip()
            case let container:
                var contents = try reader.readContainer(container)
                parts.append("\(signature)[\(try dump(&contents))]")
            }
        }
        return parts.joined(separator: ",")
    }
}
