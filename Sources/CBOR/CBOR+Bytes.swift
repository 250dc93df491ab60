// SPDX-License-Identifier: Apache-2.0
import CCarillonCBOR

extension CBOR {
    /// The bytes of the item. An integer has its own width. Strings, arrays and maps have a definite length.
    public var encoded: [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return bytes
    }

    /// Appends the bytes of the item. libcbor encodes the head: the type with a number or a length.
    private func append(to bytes: inout [UInt8]) {
        switch self {
        case .unsigned(let number, .one):
            Self.append(to: &bytes) { cbor_encode_uint8(.init(truncatingIfNeeded: number), $0, $1) }
        case .unsigned(let number, .two):
            Self.append(to: &bytes) { cbor_encode_uint16(.init(truncatingIfNeeded: number), $0, $1) }
        case .unsigned(let number, .four):
            Self.append(to: &bytes) { cbor_encode_uint32(.init(truncatingIfNeeded: number), $0, $1) }
        case .unsigned(let number, .eight): Self.append(to: &bytes) { cbor_encode_uint64(number, $0, $1) }
        case .negative(let number, .one):
            Self.append(to: &bytes) { cbor_encode_negint8(.init(truncatingIfNeeded: number), $0, $1) }
        case .negative(let number, .two):
            Self.append(to: &bytes) { cbor_encode_negint16(.init(truncatingIfNeeded: number), $0, $1) }
        case .negative(let number, .four):
            Self.append(to: &bytes) { cbor_encode_negint32(.init(truncatingIfNeeded: number), $0, $1) }
        case .negative(let number, .eight): Self.append(to: &bytes) { cbor_encode_negint64(number, $0, $1) }
        case .bytes(let content):
            Self.append(to: &bytes) { cbor_encode_bytestring_start(content.count, $0, $1) }
            bytes += content
        case .text(let text):
            Self.append(to: &bytes) { cbor_encode_string_start(text.utf8.count, $0, $1) }
            bytes += text.utf8
        case .array(let elements):
            Self.append(to: &bytes) { cbor_encode_array_start(elements.count, $0, $1) }
            for element in elements { element.append(to: &bytes) }
        case .map(let entries):
            Self.append(to: &bytes) { cbor_encode_map_start(entries.count, $0, $1) }
            for entry in entries {
                entry.key.append(to: &bytes)
                entry.value.append(to: &bytes)
            }
        case .tagged(let number, let item):
            Self.append(to: &bytes) { cbor_encode_tag(number, $0, $1) }
            item.append(to: &bytes)
        case .double(let number): Self.append(to: &bytes) { cbor_encode_double(number, $0, $1) }
        case .boolean(let value): Self.append(to: &bytes) { cbor_encode_bool(value, $0, $1) }
        case .null: Self.append(to: &bytes) { cbor_encode_null($0, $1) }
        case .undefined: Self.append(to: &bytes) { cbor_encode_undef($0, $1) }
        }
    }

    /// Appends the head that `encode` writes, which has at most nine bytes.
    private static func append(to bytes: inout [UInt8], _ encode: (UnsafeMutablePointer<UInt8>, Int) -> Int) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 9) { head in
            let count = encode(head.baseAddress!, head.count)
            bytes += head[..<count]
        }
    }
}
