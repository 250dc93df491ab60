// SPDX-License-Identifier: Apache-2.0
/// A group of records: after a crash, either all of them are in the log or none.
///
/// A record is its length and its bytes: integers are little-endian, texts and byte strings follow their length.
/// Records are encoded in place in the memory that is written, because each queued notification takes two records.
struct RecordGroup: ~Copyable {
    private var memory = UnsafeMutableRawPointer.allocate(byteCount: RecordGroup.least, alignment: 8)
    private var capacity = RecordGroup.least
    private(set) var byteCount = 0
    /// The offset of the length of the record that was begun.
    private var begun: Int?

    private static let least = 4096
    /// The capacity, in bytes, beyond which memory is not kept for the next records.
    private static let maxKept = 1 << 16

    deinit {
        memory.deallocate()
    }

    var isEmpty: Bool { byteCount == 0 }

    /// Calls `body` with the bytes of the group, which are valid only during the call.
    borrowing func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        body(UnsafeRawBufferPointer(start: memory, count: byteCount))
    }

    /// Removes all records. The memory is reused, unless it exceeds ``maxKept``.
    mutating func removeAll() {
        byteCount = 0
        begun = nil
        guard capacity > Self.maxKept else { return }
        memory.deallocate()
        (memory, capacity) = (UnsafeMutableRawPointer.allocate(byteCount: Self.least, alignment: 8), Self.least)
    }

    // MARK: Writing

    /// Begins a record. All values up to ``endRecord()`` belong to it.
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

    /// Returns memory for `more` bytes.
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

    /// Calls `body` with each record in these bytes, until it returns false.
    ///
    /// - Returns: whether all bytes were records, and `body` took all of them.
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

/// A reader of a record of a ``RecordGroup``. The bytes may be malformed; they must stay valid while it reads.
struct RecordReader {
    /// The error for bytes that are no record of the expected kind.
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

    /// Reads numbers, and converts each with `make`.
    mutating func readNumbers<Element>(_ make: (UInt64) -> Element) throws(Malformed) -> [Element] {
        let count = Int(try readUInt32())
        guard count <= (bytes.count - offset) / 8 else { throw Malformed() }
        defer { offset += 8 * count }
        return (0..<count).map { index in
            make(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 8 * index, as: UInt64.self)))
        }
    }

    /// Reads a case by its raw text.
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
