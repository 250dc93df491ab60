// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import Testing

/// A reader of untrusted messages can't misread one.
@Suite("E2: reading values of the wrong type", .limited)
struct WrongTypeTests {
    @Test("Reading a value as another type gives InvalidArgs with the actual type, and does not advance the reader")
    func basic() throws {
        var reader = MessageReader(Sample.signal { $0.append(UInt32(7)) })
        let errors = [
            invalidArgs { () throws(BusError) in _ = try reader.read(Int32.self) },
            invalidArgs { () throws(BusError) in _ = try reader.read(UInt64.self) },
            invalidArgs { () throws(BusError) in _ = try reader.read(Bool.self) },
            invalidArgs { () throws(BusError) in _ = try reader.read(Double.self) },
            invalidArgs { () throws(BusError) in _ = try reader.readString() },
            invalidArgs { () throws(BusError) in _ = try reader.read(ObjectPath.self) },
            invalidArgs { () throws(BusError) in _ = try reader.read(FileDescriptor.self) },
            invalidArgs { () throws(BusError) in _ = try reader.readFixedArray(of: UInt32.self) },
            invalidArgs { () throws(BusError) in _ = try reader.readContainer(.array) },
            invalidArgs { () throws(BusError) in _ = try reader.readContainer(.structure) },
            invalidArgs { () throws(BusError) in _ = try reader.readContainer(.variant) },
            invalidArgs { () throws(BusError) in _ = try reader.readContainer(.dictEntry) },
        ]
        for error in errors { #expect(error?.message.contains("'u'") == true, "\(String(describing: error))") }
        #expect(try reader.read(UInt32.self) == 7)
    }

    @Test("A string can't be read as an object path or a signature, nor an object path as a string")
    func texts() {
        var string = MessageReader(Sample.signal { $0.append("/a") })
        #expect(invalidArgs { () throws(BusError) in _ = try string.read(ObjectPath.self) } != nil)
        #expect(invalidArgs { () throws(BusError) in _ = try string.read(Signature.self) } != nil)
        var path = MessageReader(Sample.signal { $0.append(ObjectPath("/a")) })
        #expect(invalidArgs { () throws(BusError) in _ = try path.readString() } != nil)
    }

    @Test("Reading past the last value gives InvalidArgs")
    func end() {
        var reader = MessageReader(Sample.signal())
        #expect(reader.hasEnded)
        #expect(invalidArgs { () throws(BusError) in _ = try reader.readString() } != nil)
        #expect(invalidArgs { () throws(BusError) in _ = try reader.readContainer(.array) } != nil)
        #expect(invalidArgs { () throws(BusError) in _ = try reader.readFixedArray(of: UInt8.self) } != nil)
        reader.skip()
        #expect(reader.hasEnded)
    }

    @Test("Reading an array as one of another element type gives InvalidArgs, also if the array is empty")
    func arrays() {
        var reader = MessageReader(Sample.signal { $0.append(fixedArray: [Int32(1)]) })
        #expect(
            invalidArgs { () throws(BusError) in _ = try reader.readFixedArray(of: UInt32.self) }?.message
                == "expected an array of 'u', got 'ai'")
        var empty = MessageReader(Sample.signal { $0.array(of: "s") { _ in } })
        #expect(invalidArgs { () throws(BusError) in _ = try empty.readFixedArray(of: UInt8.self) } != nil)
    }

    @Test("Reading a wrong type inside a container, or past the container's end, gives InvalidArgs")
    func contents() throws {
        var reader = MessageReader(
            Sample.signal { writer in
                writer.structure { $0.append("a") }
                writer.append("b")
            })
        var structure = try reader.readContainer(.structure)
        #expect(invalidArgs { () throws(BusError) in _ = try structure.read(UInt8.self) } != nil)
        #expect(try structure.readString() == "a")
        #expect(invalidArgs { () throws(BusError) in _ = try structure.readString() } != nil)
        #expect(try reader.readString() == "b")
    }

    /// The error, if it is InvalidArgs.
    private func invalidArgs(_ body: () throws(BusError) -> Void) -> BusError? {
        do throws(BusError) {
            try body()
            return nil
        } catch {
            return error.name == BusError.invalidArgsName ? error : nil
        }
    }
}
