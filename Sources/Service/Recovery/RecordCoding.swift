// SPDX-License-Identifier: Apache-2.0
/// A group of encoded records that is written to the recovery log as a whole: after a crash, the log has either all of
/// them or none (``RecoveryLog``).
///
/// A record is its length, a 32-bit integer, and its bytes. Integers are little-endian; texts and byte strings follow
/// their length. A writer calls ``beginRecord()``, the `append` methods and ``endRecord()``. The values are encoded
/// directly into the memory that is later written, because each queued notification takes two records.
struct RecordGroup: ~Copyable {
    private var memory = UnsafeMutableRawPointer.allocate(byteCount: RecordGroup.initialCapacity, alignment: 8)
    /// The size of ``memory``, in bytes.
    private var capacity = RecordGroup.initialCapacity
    /// The size of the group, in bytes.
    private(set) var byteCount = 0
    /// The offset of the length of the begun record; nil between two records.
    private var begun: Int?

    /// The initial capacity, in bytes.
    private static let initialCapacity = 4096
    /// The capacity, in bytes, beyond which the memory is released and not reused.
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
        (memory, capacity) = (
            UnsafeMutableRawPointer.allocate(byteCount: Self.initialCapacity, alignment: 8), Self.initialCapacity
        )
    }

    // MARK: Writing

    /// Begins a record. All values up to ``endRecord()`` belong to it.
    mutating func beginRecord() {
        precondition(begun == nil, "one record is written after the other")
        begun = byteCount
        append(UInt32(0))
    }

    /// Ends the record: writes its length before it.
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

    /// Returns the memory for `more` bytes at the end of the group, and counts them.
    private mutating func take(_ more: Int) -> UnsafeMutableRawPointer {
        if more > capacity - byteCount { grow(by: more) }
        defer { byteCount += more }
        return memory + byteCount
    }

    /// Moves the group to memory that has capacity for `more` bytes.
    private mutating func grow(by more: Int) {
        capacity = max(2 * capacity, byteCount + more)
        let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 8)
        larger.copyMemory(from: memory, byteCount: byteCount)
        memory.deallocate()
        memory = larger
    }

    // MARK: Reading

    /// Calls `body` with each record of a group that was read from a log, until it returns false.
    ///
    /// - Parameter bytes: the bytes of the group.
    /// - Returns: whether all bytes were records and `body` returned true for each.
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

/// A reader of the values in a record, in their order. The bytes may be corrupt, which throws ``Malformed``. Their
/// memory must stay valid while the reader is used.
struct RecordReader {
    /// The error for bytes that are not the expected value.
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

    /// Reads a case of an enumeration by its raw text.
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
