// SPDX-License-Identifier: Apache-2.0
/// Records that are kept together: after a crash there are all of them, or none.
///
/// A record is its length and its bytes: integers little-endian, texts and byte strings behind their length. It is laid
/// out where it stays until the group is written: each notification that waits takes two.
struct RecordGroup: ~Copyable {
    private var memory = UnsafeMutableRawPointer.allocate(byteCount: RecordGroup.least, alignment: 8)
    private var capacity = RecordGroup.least
    private(set) var byteCount = 0
    /// Where the length of the record stands that was begun.
    private var begun: Int?

    private static let least = 4096
    /// More is not kept for the next records.
    private static let maxKept = 1 << 16

    deinit {
        memory.deallocate()
    }

    var isEmpty: Bool { byteCount == 0 }

    /// Calls `body` with all of it, which is valid only inside.
    borrowing func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        body(UnsafeRawBufferPointer(start: memory, count: byteCount))
    }

    /// The memory is used again, unless it is much.
    mutating func removeAll() {
        byteCount = 0
        begun = nil
        guard capacity > Self.maxKept else { return }
        memory.deallocate()
        (memory, capacity) = (UnsafeMutableRawPointer.allocate(byteCount: Self.least, alignment: 8), Self.least)
    }

    // MARK: Writing

    /// Begins a record. What is appended until ``endRecord()`` is in it.
    mutating func beginRecord() {
        precondition(begun == nil, "one record is written after the other")
        begun = byteCount
        append(UInt32(0))
    }

    mutating func endRecord() {
        guard let start = begun else { preconditionFailure("a record was begun") }
        begun = nil
        let length = UInt32(byteCount - start - 4)
        memory.storeBytes(of: length.littleEndian, toByteOffset: start, as: UInt32.self)
    }

    mutating func append(_ value: UInt8) { append(integer: value) }
    mutating func append(_ value: UInt32) { append(integer: value) }
    mutating func append(_ value: UInt64) { append(integer: value) }
    mutating func append(_ value: Bool) { append(integer: value ? 1 : 0 as UInt8) }

    mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { text in
            append(UInt32(text.count))
            append(raw: UnsafeRawBufferPointer(text))
        }
    }

    mutating func append(_ data: [UInt8]) {
        append(UInt32(data.count))
        data.withUnsafeBytes { append(raw: $0) }
    }

    mutating func append(_ numbers: some Collection<UInt64>) {
        append(UInt32(numbers.count))
        for number in numbers { append(number) }
    }

    private mutating func append<Value: FixedWidthInteger>(integer value: Value) {
        take(MemoryLayout<Value>.size).storeBytes(of: value.littleEndian, as: Value.self)
    }

    private mutating func append(raw bytes: UnsafeRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        take(bytes.count).copyMemory(from: start, byteCount: bytes.count)
    }

    /// Room for so many more.
    private mutating func take(_ more: Int) -> UnsafeMutableRawPointer {
        if more > capacity - byteCount { grow(by: more) }
        defer { byteCount += more }
        return memory + byteCount
    }

    private mutating func grow(by more: Int) {
        capacity = max(2 * capacity, byteCount + more)
        let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 8)
        larger.copyMemory(from: memory, byteCount: byteCount)
        memory.deallocate()
        memory = larger
    }

    // MARK: Reading

    /// Gives the records in these bytes one by one to `body`, until that returns false.
    ///
    /// - Returns: whether all of it was records, and taken.
    static func read(_ bytes: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Bool) -> Bool {
        var offset = 0
        while offset < bytes.count {
            guard bytes.count - offset >= 4 else { return false }
            let length = Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)))
            offset += 4
            guard length <= bytes.count - offset,
                body(UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + length]))
            else { return false }
            offset += length
        }
        return true
    }
}

/// Reads a record of a ``RecordGroup``, from bytes that may be anything. They stay where they are while it reads.
struct RecordReader {
    /// The bytes are no such record.
    struct Malformed: Error {}

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    var isAtEnd: Bool { offset == bytes.count }

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

    /// One of the cases, by its text.
    mutating func readChoice<Choice: RawRepresentable<String>>() throws(Malformed) -> Choice {
        guard let choice = Choice(rawValue: try readText()) else { throw Malformed() }
        return choice
    }

    private mutating func readInteger<Value: FixedWidthInteger>() throws(Malformed) -> Value {
        let size = MemoryLayout<Value>.size
        guard size <= bytes.count - offset else { throw Malformed() }
        defer { offset += size }
        return Value(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: Value.self))
    }
}
