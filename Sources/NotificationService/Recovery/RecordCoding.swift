/// The bytes of a record: integers little-endian, texts and byte strings behind their length.
struct RecordWriter {
    private(set) var bytes: [UInt8] = []

    mutating func append(_ value: UInt8) { bytes.append(value) }
    mutating func append(_ value: UInt32) { appendInteger(value) }
    mutating func append(_ value: UInt64) { appendInteger(value) }
    mutating func append(_ value: Bool) { bytes.append(value ? 1 : 0) }

    mutating func append(_ text: String) {
        append(UInt32(text.utf8.count))
        bytes += text.utf8
    }

    mutating func append(_ data: [UInt8]) {
        append(UInt32(data.count))
        bytes += data
    }

    mutating func append(_ numbers: some Collection<UInt64>) {
        append(UInt32(numbers.count))
        for number in numbers { append(number) }
    }

    private mutating func appendInteger<Value: FixedWidthInteger>(_ value: Value) {
        withUnsafeBytes(of: value.littleEndian) { bytes += $0 }
    }
}

/// Reads what ``RecordWriter`` wrote, from bytes that may be anything.
struct RecordReader {
    /// The bytes are no such record.
    struct Malformed: Error {}

    private var bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
    }

    mutating func readUInt8() throws(Malformed) -> UInt8 { try take(1).first! }
    mutating func readUInt32() throws(Malformed) -> UInt32 { try readInteger() }
    mutating func readUInt64() throws(Malformed) -> UInt64 { try readInteger() }

    mutating func readBool() throws(Malformed) -> Bool {
        switch try readUInt8() {
        case 0: false
        case 1: true
        default: throw Malformed()
        }
    }

    mutating func readText() throws(Malformed) -> String {
        guard let text = String(validating: try readBytes(), as: UTF8.self), !text.utf8.contains(0) else {
            throw Malformed()
        }
        return text
    }

    mutating func readBytes() throws(Malformed) -> ArraySlice<UInt8> {
        try take(Int(try readUInt32()))
    }

    mutating func readNumbers() throws(Malformed) -> [UInt64] {
        let count = Int(try readUInt32())
        guard count <= bytes.count / 8 else { throw Malformed() }
        var numbers: [UInt64] = []
        numbers.reserveCapacity(count)
        for _ in 0..<count { numbers.append(try readUInt64()) }
        return numbers
    }

    private mutating func readInteger<Value: FixedWidthInteger>() throws(Malformed) -> Value {
        let size = MemoryLayout<Value>.size
        return Value(littleEndian: try take(size).withUnsafeBytes { $0.loadUnaligned(as: Value.self) })
    }

    private mutating func take(_ count: Int) throws(Malformed) -> ArraySlice<UInt8> {
        guard count <= bytes.count else { throw Malformed() }
        defer { bytes = bytes.dropFirst(count) }
        return bytes.prefix(count)
    }
}
