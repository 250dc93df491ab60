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

/// Reads what ``RecordWriter`` wrote, from bytes that may be anything. They stay where they are while it reads.
struct RecordReader {
    /// The bytes are no such record.
    struct Malformed: Error {}

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    mutating func readUInt8() throws(Malformed) -> UInt8 { try readInteger() }
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
        let text = try readBytes().bindMemory(to: UInt8.self)
        guard !text.contains(0), let text = String(validating: text, as: UTF8.self) else { throw Malformed() }
        return text
    }

    mutating func readBytes() throws(Malformed) -> UnsafeRawBufferPointer {
        let count = Int(try readUInt32())
        guard count <= bytes.count - offset else { throw Malformed() }
        defer { offset += count }
        return UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count])
    }

    /// Numbers, each made into what it stands for.
    mutating func readNumbers<Element>(_ make: (UInt64) -> Element) throws(Malformed) -> [Element] {
        let count = Int(try readUInt32())
        guard count <= (bytes.count - offset) / 8 else { throw Malformed() }
        defer { offset += 8 * count }
        return (0..<count).map { index in
            make(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 8 * index, as: UInt64.self)))
        }
    }

    private mutating func readInteger<Value: FixedWidthInteger>() throws(Malformed) -> Value {
        let size = MemoryLayout<Value>.size
        guard size <= bytes.count - offset else { throw Malformed() }
        defer { offset += size }
        return Value(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: Value.self))
    }
}
