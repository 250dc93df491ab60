// SPDX-License-Identifier: Apache-2.0
import CCarillonCBOR

/// A parser of CBOR from untrusted bytes, for ``CBOR/init(_:)``. libcbor decodes each **head**: the type of an item
/// with its number or length. This parser builds the items.
struct CBORReader {
    private let bytes: [UInt8]
    /// The offset of the next byte.
    private var position = 0

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// Reads all bytes, which have one data item.
    mutating func readAll() throws(CBOR.Malformed) -> CBOR {
        let item = try readItem(depth: 0)
        guard position == bytes.count else { throw fault("more than one data item") }
        return item
    }

    private func fault(_ reason: String) -> CBOR.Malformed { CBOR.Malformed(position: position, reason: reason) }

    /// Reads an item.
    ///
    /// - Parameter depth: the number of items around it.
    private mutating func readItem(depth: Int) throws(CBOR.Malformed) -> CBOR {
        let start = position
        guard let item = try readItemOrBreak(depth: depth) else {
            throw CBOR.Malformed(position: start, reason: "a break outside of an item of indefinite length")
        }
        return item
    }

    /// Reads an item, or the break that ends an item of indefinite length.
    ///
    /// - Returns: nil at a break.
    private mutating func readItemOrBreak(depth: Int) throws(CBOR.Malformed) -> CBOR? {
        guard depth < CBOR.maximumDepth else { throw fault("more than \(CBOR.maximumDepth) nested items") }
        switch try readHead() {
        case .item(let item): return item
        case .text(let range): return .text(try text(range))
        case .bytes(let range): return .bytes(Array(bytes[range]))
        case .textChunks:
            var whole = ""
            try readChunks { (reader, head) throws(CBOR.Malformed) in
                guard case .text(let range) = head else { return false }
                whole += try reader.text(range)
                return true
            }
            return .text(whole)
        case .byteChunks:
            var whole: [UInt8] = []
            try readChunks { (reader, head) throws(CBOR.Malformed) in
                guard case .bytes(let range) = head else { return false }
                whole += reader.bytes[range]
                return true
            }
            return .bytes(whole)
        case .array(let count):
            var elements: [CBOR] = []
            try checkCount(count, bytesOfEach: 1)
            while count.map({ elements.count < $0 }) ?? true {
                guard let element = try readElement(ofSome: count, depth: depth) else { break }
                elements.append(element)
            }
            return .array(elements)
        case .map(let count):
            var entries: [CBOR.Entry] = []
            try checkCount(count, bytesOfEach: 2)
            while count.map({ entries.count < $0 }) ?? true {
                guard let key = try readElement(ofSome: count, depth: depth) else { break }
                entries.append(CBOR.Entry(key, try readItem(depth: depth + 1)))
            }
            return .map(entries)
        case .tag(let number): return .tagged(number, try readItem(depth: depth + 1))
        case .stop: return nil
        }
    }

    /// Reads an element of an array, or a key of a map.
    ///
    /// - Parameter count: the stated number of elements; nil for an indefinite length.
    /// - Returns: nil at the break of an item of indefinite length.
    private mutating func readElement(ofSome count: UInt64?, depth: Int) throws(CBOR.Malformed) -> CBOR? {
        count == nil ? try readItemOrBreak(depth: depth + 1) : try readItem(depth: depth + 1)
    }

    /// Refuses a stated count for which too few bytes remain. Each element takes at least `size` bytes.
    private func checkCount(_ count: UInt64?, bytesOfEach size: Int) throws(CBOR.Malformed) {
        guard let count, count > UInt64((bytes.count - position) / size) else { return }
        throw fault("\(count) items are stated, and the bytes end before them")
    }

    /// Reads the chunks of a string of indefinite length, up to its break.
    ///
    /// - Parameter take: takes the head of a chunk. It returns false for a head of another type.
    private mutating func readChunks(
        _ take: (CBORReader, Head) throws(CBOR.Malformed) -> Bool
    ) throws(CBOR.Malformed) {
        while true {
            let head = try readHead()
            if case .stop = head { return }
            guard try take(self, head) else { throw fault("a chunk of a string has another type") }
        }
    }

    /// Returns the text at a range of the input.
    private func text(_ range: Range<Int>) throws(CBOR.Malformed) -> String {
        guard let text = String(validating: bytes[range], as: UTF8.self) else { throw fault("a text is not UTF-8") }
        return text
    }

    /// Reads a head. A string of definite length is read with it.
    private mutating func readHead() throws(CBOR.Malformed) -> Head {
        // libcbor refuses the tags 6 to 20 in their short form, although the RFC allows them.
        if position < bytes.count, 0xC6...0xD4 ~= bytes[position] {
            defer { position += 1 }
            return .tag(UInt64(bytes[position] & 0x1F))
        }
        var found = DecodedHead()
        let result = bytes.withUnsafeBufferPointer { bytes in
            // An empty array may have no address, but libcbor requires one.
            guard let base = bytes.baseAddress, position < bytes.count else {
                return cbor_decoder_result(read: 0, status: CBOR_DECODER_NEDATA, required: 1)
            }
            found.start = base
            return withUnsafePointer(to: Self.callbacks) { callbacks in
                withUnsafeMutablePointer(to: &found) {
                    cbor_stream_decode(base + position, bytes.count - position, callbacks, $0)
                }
            }
        }
        switch result.status {
        case CBOR_DECODER_FINISHED:
            guard let head = found.head else { throw fault("no data item") }
            position += result.read
            return head
        case CBOR_DECODER_NEDATA: throw fault("the bytes end too early")
        default: throw fault("no valid data item")
        }
    }

    // MARK: Heads

    /// The result of reading a head: an item without content behind it, or the beginning of an item.
    private enum Head {
        case item(CBOR)
        /// A string of definite length, as its range of the input.
        case text(Range<Int>)
        case bytes(Range<Int>)
        /// The number of elements; nil for an indefinite length.
        case array(UInt64?)
        case map(UInt64?)
        /// A string of indefinite length, whose chunks follow.
        case textChunks, byteChunks
        case tag(UInt64)
        /// The break that ends an item of indefinite length.
        case stop
    }

    /// The context of the callbacks of libcbor: they leave the head here.
    private struct DecodedHead {
        /// The address of the whole input.
        var start: UnsafePointer<UInt8>?
        /// Nil until a callback has run.
        var head: Head?
    }

    /// Leaves a head in the context of a callback.
    private static func found(_ context: UnsafeMutableRawPointer?, _ head: Head) {
        context?.assumingMemoryBound(to: DecodedHead.self).pointee.head = head
    }

    /// Returns the range of a string in the input, whose address the context has.
    private static func range(
        _ context: UnsafeMutableRawPointer?, _ data: UnsafePointer<UInt8>?, _ count: Int
    ) -> Range<Int> {
        guard let data, let start = context?.assumingMemoryBound(to: DecodedHead.self).pointee.start else {
            return 0..<0
        }
        return data - start..<data - start + count
    }

    /// One callback for each type of head. Versions of libcbor differ in the types of lengths, so that lengths are
    /// converted.
    private static let callbacks = cbor_callbacks(
        uint8: { found($0, .item(.unsigned(UInt64($1), .one))) },
        uint16: { found($0, .item(.unsigned(UInt64($1), .two))) },
        uint32: { found($0, .item(.unsigned(UInt64($1), .four))) },
        uint64: { found($0, .item(.unsigned($1, .eight))) },
        negint64: { found($0, .item(.negative($1, .eight))) },
        negint32: { found($0, .item(.negative(UInt64($1), .four))) },
        negint16: { found($0, .item(.negative(UInt64($1), .two))) },
        negint8: { found($0, .item(.negative(UInt64($1), .one))) },
        byte_string_start: { found($0, .byteChunks) },
        byte_string: { found($0, .bytes(range($0, $1, Int(clamping: $2)))) },
        string: { found($0, .text(range($0, $1, Int(clamping: $2)))) },
        string_start: { found($0, .textChunks) },
        indef_array_start: { found($0, .array(nil)) },
        array_start: { found($0, .array(UInt64(truncatingIfNeeded: $1))) },
        indef_map_start: { found($0, .map(nil)) },
        map_start: { found($0, .map(UInt64(truncatingIfNeeded: $1))) },
        tag: { found($0, .tag($1)) },
        float2: { found($0, .item(.double(Double($1)))) },
        float4: { found($0, .item(.double(Double($1)))) },
        float8: { found($0, .item(.double($1))) },
        undefined: { found($0, .item(.undefined)) },
        null: { found($0, .item(.null)) },
        boolean: { found($0, .item(.boolean($1))) },
        indef_break: { found($0, .stop) })
}
