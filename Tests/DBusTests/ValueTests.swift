// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import Foundation
import Testing

/// Values written to a message and read back.
@Suite("D-Bus values", .limited)
struct ValueTests {
    @Test("Integers arrive unchanged, including the least and the greatest values")
    func integers() throws {
        try check([UInt8.min, 1, .max], "y")
        try check([Int16.min, -1, 0, 1, .max], "n")
        try check([UInt16.min, 1, .max], "q")
        try check([Int32.min, -1, 0, 1, .max], "i")
        try check([UInt32.min, 1, .max], "u")
        try check([Int64.min, -1, 0, 1, .max], "x")
        try check([UInt64.min, 1, .max], "t")
        try check([false, true], "b")
    }

    @Test("Floating-point values arrive bit by bit: NaN, infinities, negative zero, the smallest and the largest")
    func doubles() throws {
        let values = [
            0, -0.0, 1.5, .pi, .infinity, -.infinity, .greatestFiniteMagnitude, .leastNonzeroMagnitude, .nan,
            Double(bitPattern: 0x7ff8_0000_dead_beef),
        ]
        let message = write { writer in values.forEach { writer.append($0) } }
        var reader = MessageReader(message)
        for value in values { #expect(try reader.read(Double.self).bitPattern == value.bitPattern) }
        #expect(reader.hasEnded)
    }

    @Test("Strings, object paths and signatures arrive unchanged")
    func strings() throws {
        try check(
            [
                "", "a", "Größe", "🔔👩‍👩‍👧", "e\u{301}", "\u{1}\n\u{7f}", "\u{FFFE}\u{10FFFF}",
                String(repeating: "x", count: 100_000),
            ],
            "s")
        try check([ObjectPath("/"), "/a/b_1"], "o")
        try check([Signature(""), "a{sv}", "(isa{s(xd)})", "nqiuxtdybsogvh"], "g")
    }

    @Test("A received file descriptor is a duplicate that refers to the same file")
    func descriptors() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let readEnd = FileDescriptor(adopting: ends[0])
        var message: Message?
        do {
            let writeEnd = FileDescriptor(adopting: ends[1])
            message = write { $0.append(writeEnd) }
            #expect(message?.signature == "h")
        }
        // The message has its own; ours is closed.
        var arrived: FileDescriptor?
        do {
            var reader = MessageReader(try #require(message))
            arrived = try reader.read(FileDescriptor.self)
        }
        message = nil
        let descriptor = try #require(arrived?.rawValue)
        #expect(descriptor >= 0)
        #expect(Foundation.write(descriptor, "x", 1) == 1)
        var byte: UInt8 = 0
        #expect(read(readEnd.rawValue, &byte, 1) == 1 && byte == UInt8(ascii: "x"))
        // The last reference closes it: the pipe's end is seen.
        arrived = nil
        #expect(read(readEnd.rawValue, &byte, 1) == 0)
    }

    @Test("Arrays written as one block arrive unchanged, and empty ones keep their element type")
    func fixedArrays() throws {
        try checkFixedArray([UInt8]([0, 1, 255]), "ay")
        try checkFixedArray([Int16]([.min, .max]), "an")
        try checkFixedArray([UInt16]([.min, .max]), "aq")
        try checkFixedArray([Int32]([.min, .max]), "ai")
        try checkFixedArray([UInt32]([.min, .max]), "au")
        try checkFixedArray([Int64]([.min, .max]), "ax")
        try checkFixedArray([UInt64]([.min, .max]), "at")
        try checkFixedArray([Double]([-.infinity, 0.5]), "ad")
        try checkFixedArray([UInt8](repeating: 7, count: 1_000_000), "ay")
        try checkFixedArray([UInt8](), "ay")
        try checkFixedArray([UInt64](), "at")
        try checkFixedArray([Double](), "ad")
    }

    @Test("Nested structures, arrays, dictionaries and variants arrive unchanged")
    func containers() throws {
        let message = write { writer in
            writer.structure { writer in
                writer.append(Int32(-1))
                writer.structure { $0.append("inner") }
            }
            writer.array(of: "as") { writer in
                writer.array(of: "s") { writer in
                    writer.append("a")
                    writer.append("b")
                }
                writer.array(of: "s") { _ in }
            }
            writer.array(of: "{sv}") { writer in
                writer.entry("byte", UInt8(7))
                writer.entry("text", "seven")
            }
            writer.variant(of: "v") { writer in
                writer.variant(of: "(d)") { writer in writer.structure { $0.append(2.5) } }
            }
        }
        #expect(message.signature == "(i(s))aasa{sv}v")
        var reader = MessageReader(message)

        var structure = try reader.readContainer(.structure)
        #expect(try structure.read(Int32.self) == -1)
        var inner = try structure.readContainer(.structure)
        #expect(try inner.readString() == "inner")
        #expect(inner.hasEnded && structure.hasEnded)

        var arrays = try reader.readContainer(.array)
        var first = try arrays.readContainer(.array)
        #expect(try first.readString() == "a")
        #expect(try first.readString() == "b")
        #expect(first.hasEnded)
        #expect(arrays.upcomingSignature == "as")
        let second = try arrays.readContainer(.array)
        #expect(second.hasEnded && arrays.hasEnded)

        var dictionary = try reader.readContainer(.array)
        var entry = try dictionary.readContainer(.dictEntry)
        #expect(try entry.readString() == "byte")
        var value = try entry.readContainer(.variant)
        #expect(value.upcomingType == .byte)
        #expect(try value.read(UInt8.self) == 7)
        #expect(value.hasEnded && entry.hasEnded)
        dictionary.skip()
        #expect(dictionary.hasEnded)

        var outer = try reader.readContainer(.variant)
        var variant = try outer.readContainer(.variant)
        #expect(variant.upcomingSignature == "(d)")
        var double = try variant.readContainer(.structure)
        #expect(try double.read(Double.self) == 2.5)
        #expect(reader.hasEnded && reader.upcomingType == .end && reader.upcomingSignature == "")
    }

    @Test(
        "Empty arrays keep the type of their elements",
        arguments: ["y", "b", "s", "o", "g", "h", "v", "as", "aas", "(is)", "{sv}", "{oa{sv}}", "a{sv}", "(a(yv)d)"]
            as [Signature])
    func emptyArrays(element: Signature) throws {
        let message = write { $0.array(of: element) { _ in } }
        #expect(message.signature.rawValue == "a" + element.rawValue)
        var reader = MessageReader(message)
        #expect(reader.upcomingSignature.rawValue == "a" + element.rawValue)
        let contents = try reader.readContainer(.array)
        #expect(contents.hasEnded && reader.hasEnded)
    }

    @Test("skip passes over one whole value of any type")
    func skip() throws {
        let message = write { writer in
            writer.array(of: "{sv}") { $0.entry("a", "b") }
            writer.variant(of: "(sx)") { writer in
                writer.structure { writer in
                    writer.append("a")
                    writer.append(Int64(1))
                }
            }
            writer.append(fixedArray: [UInt8](repeating: 1, count: 3))
            writer.append("last")
        }
        var reader = MessageReader(message)
        for _ in 0..<3 { reader.skip() }
        #expect(try reader.readString() == "last")
        #expect(reader.hasEnded)
    }

    @Test("An error thrown while a container is written is rethrown, and later messages are not affected")
    func abandoned() throws {
        struct GivenUp: Error {}
        #expect(throws: GivenUp.self) {
            try write { writer throws(GivenUp) in
                try writer.array(of: "{sv}") { writer throws(GivenUp) in
                    try writer.dictEntry { writer throws(GivenUp) in
                        writer.append("key")
                        try writer.variant(of: "(si)") { writer throws(GivenUp) in
                            try writer.structure { writer throws(GivenUp) in
                                writer.append("half")
                                throw GivenUp()
                            }
                        }
                    }
                }
            }
        }
        try check(["whole"], "s")
    }

    // MARK: -

    private func write<Failure: Error>(
        _ body: (inout MessageWriter) throws(Failure) -> Void
    ) throws(Failure) -> Message {
        let message = Message.signal(path: Sample.path, interface: Sample.interface, member: "Rang")
        var writer = MessageWriter(message)
        try body(&writer)
        return message
    }

    private func check<Value: BasicType & Equatable>(_ values: [Value], _ code: String) throws {
        let message = write { writer in values.forEach { writer.append($0) } }
        #expect(message.signature.rawValue == String(repeating: code, count: values.count))
        #expect(String(Value.typeCode.letter) == code)
        var reader = MessageReader(message)
        for value in values {
            #expect(reader.upcomingType == Value.typeCode)
            #expect(try reader.read(Value.self) == value)
        }
        #expect(reader.hasEnded)
    }

    private func checkFixedArray<Element: FixedSizeType & Equatable>(_ elements: [Element], _ signature: String) throws
    {
        let message = write { writer in
            writer.append(fixedArray: elements)
            writer.append("behind")
        }
        #expect(message.signature.rawValue == signature + "s")
        var reader = MessageReader(message)
        #expect(reader.upcomingElementType == Element.typeCode)
        #expect(try reader.readFixedArray(of: Element.self) == elements)
        #expect(try reader.readString() == "behind")
        // One by one it is the same.
        var again = MessageReader(message)
        var contents = try again.readContainer(.array)
        for element in elements.prefix(1000) { #expect(try contents.read(Element.self) == element) }
    }
}
