// SPDX-License-Identifier: Apache-2.0
import CarillonCBOR
import CarillonWire

/// The conversion between property lists, the values of userInfo, and CBOR (RFC 8949). Integers may keep their widths.
///
/// | property list | CBOR |
/// |---|---|
/// | `uint8`, `int16`, `int32`, `int64` | an integer of 1, 2, 4, 8 bytes |
/// | `uint16`, `uint32`, `uint64` | an unsigned bignum (tag 2) of 2, 4, 8 bytes, a number for every reader |
/// | data, string, array, dictionary | a byte string, a text string, an array, a map |
/// | boolean, double | `true` and `false`, a number of double precision |
/// | date | seconds since 1970 (tag 1); if a double does not hold the microseconds, RFC 9581 (tag 1001) |
///
/// Other programs encode each number with as few bytes as it needs, so that the width means nothing. Their integers
/// become `int64`, as in JSON. A bridge that keeps widths says so in a user property
/// (``MessageProperties/keepsWidths``).
enum PropertyListCBOR {
    /// The fault of a CBOR value that no property list can represent.
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// The tags of CBOR that are written or read.
    private enum Tag {
        /// A date as ISO 8601 text; only read.
        static let dateText: UInt64 = 0
        /// Seconds since 1970.
        static let seconds: UInt64 = 1
        /// A non-negative bignum.
        static let unsigned: UInt64 = 2
        /// A negative bignum; only read.
        static let negative: UInt64 = 3
        /// The extended time of RFC 9581, a map.
        static let extendedTime: UInt64 = 1001
        /// A mark for CBOR data without other meaning; only read.
        static let selfDescribed: UInt64 = 55799
    }

    // MARK: Writing

    /// Returns a property list as CBOR.
    static func cbor(_ value: PropertyList) -> CBOR {
        switch value {
        case .string(let text): .text(text)
        case .boolean(let value): .boolean(value)
        case .uint8(let number): .unsigned(UInt64(number), .one)
        case .int16(let number): integer(Int64(number), .two)
        case .uint16(let number): bignum(number)
        case .int32(let number): integer(Int64(number), .four)
        case .uint32(let number): bignum(number)
        case .int64(let number): integer(number, .eight)
        case .uint64(let number): bignum(number)
        case .double(let number): .double(number)
        case .data(let bytes): .bytes(bytes)
        case .date(let microseconds): date(microseconds)
        case .array(let elements): .array(elements.map(cbor))
        case .dictionary(let entries):
            .map(entries.sorted { $0.key < $1.key }.map { CBOR.Entry(.text($0.key), cbor($0.value)) })
        }
    }

    /// Returns an integer with a fixed width.
    private static func integer(_ number: Int64, _ width: CBOR.Width) -> CBOR {
        number < 0 ? .negative(UInt64(~number), width) : .unsigned(UInt64(number), width)
    }

    /// Returns a bignum with the width of the number's type.
    private static func bignum(_ number: some FixedWidthInteger) -> CBOR {
        .tagged(Tag.unsigned, .bytes(withUnsafeBytes(of: number.bigEndian) { Array($0) }))
    }

    /// Returns a date in the shortest form that keeps the microseconds.
    private static func date(_ microseconds: Int64) -> CBOR {
        let (seconds, fraction) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
        if fraction == 0 { return .tagged(Tag.seconds, integer(seconds, .eight)) }
        let double = Double(microseconds) / 1_000_000
        if self.microseconds(double) == microseconds { return .tagged(Tag.seconds, .double(double)) }
        // Key 1 holds the seconds, and key -6 the microseconds to add.
        let whole = fraction < 0 ? seconds - 1 : seconds
        return .tagged(
            Tag.extendedTime,
            .map([
                CBOR.Entry(.unsigned(1, .one), integer(whole, .eight)),
                CBOR.Entry(.negative(5, .one), integer(fraction < 0 ? fraction + 1_000_000 : fraction, .four)),
            ]))
    }

    // MARK: Reading

    /// Reads userInfo.
    ///
    /// - Parameter keepsWidths: whether the width of an integer is its type.
    /// - Returns: the entries of a map; any other value as the only entry `value`.
    /// - Throws: ``Failure`` for values that a property list can't represent.
    static func userInfo(from value: CBOR, keepsWidths: Bool) throws(Failure) -> [String: PropertyList] {
        if case .tagged(Tag.selfDescribed, let item) = value {
            return try userInfo(from: item, keepsWidths: keepsWidths)
        }
        let reader = Reader(keepsWidths: keepsWidths)
        // Other programs at the broker publish a single number, string or list.
        guard case .map(let entries) = value else { return ["value": try reader.propertyList(value, path: "userInfo")] }
        return try reader.dictionary(entries, path: "userInfo")
    }

    /// Returns seconds as microseconds; nil for numbers that are not finite, or that exceed 64 bits.
    private static func microseconds(_ seconds: Double) -> Int64? {
        Int64(exactly: (seconds * 1_000_000).rounded())
    }

    /// The reader of one payload. `path` is the position of a value, for error texts.
    private struct Reader {
        let keepsWidths: Bool

        func dictionary(_ entries: [CBOR.Entry], path: String) throws(Failure) -> [String: PropertyList] {
            var result: [String: PropertyList] = [:]
            for entry in entries {
                guard case .text(let key) = entry.key else {
                    throw Failure(description: "\(path): a key is not text")
                }
                guard result.updateValue(try propertyList(entry.value, path: "\(path).\(key)"), forKey: key) == nil
                else {
                    throw Failure(description: "\(path): the key '\(key)' is given twice")
                }
            }
            return result
        }

        func propertyList(_ value: CBOR, path: String) throws(Failure) -> PropertyList {
            switch value {
            case .unsigned(let number, let width): return unsigned(number, width)
            case .negative(let number, let width):
                guard let number = Int64(exactly: number) else {
                    throw Failure(description: "\(path): a number is out of the range of 64-bit integers")
                }
                return signed(~number, width)
            case .bytes(let bytes): return .data(bytes)
            case .text(let text): return .string(text)
            case .double(let number): return .double(number)
            case .boolean(let value): return .boolean(value)
            case .null: throw Failure(description: "\(path): null is not a property-list value")
            case .undefined: throw Failure(description: "\(path): undefined is not a property-list value")
            case .array(let elements):
                var result: [PropertyList] = []
                for (position, element) in elements.enumerated() {
                    result.append(try propertyList(element, path: "\(path)[\(position)]"))
                }
                return .array(result)
            case .map(let entries): return .dictionary(try dictionary(entries, path: path))
            case .tagged(let tag, let item): return try tagged(tag, item, path: path)
            }
        }

        /// Returns an unsigned number in the type of its width.
        private func unsigned(_ number: UInt64, _ width: CBOR.Width) -> PropertyList {
            guard keepsWidths else { return plain(number) }
            switch width {
            case .one: return UInt8(exactly: number).map { .uint8($0) } ?? plain(number)
            case .two: return Int16(exactly: number).map { .int16($0) } ?? plain(number)
            case .four: return Int32(exactly: number).map { .int32($0) } ?? plain(number)
            case .eight: return plain(number)
            }
        }

        /// Returns a negative number in the type of its width.
        private func signed(_ number: Int64, _ width: CBOR.Width) -> PropertyList {
            guard keepsWidths else { return .int64(number) }
            switch width {
            case .one, .two: return Int16(exactly: number).map { .int16($0) } ?? .int64(number)
            case .four: return Int32(exactly: number).map { .int32($0) } ?? .int64(number)
            case .eight: return .int64(number)
            }
        }

        /// Returns a number whose width is not significant.
        private func plain(_ number: UInt64) -> PropertyList {
            Int64(exactly: number).map { .int64($0) } ?? .uint64(number)
        }

        /// Returns the value with a tag.
        private func tagged(_ tag: UInt64, _ item: CBOR, path: String) throws(Failure) -> PropertyList {
            switch (tag, item) {
            case (Tag.selfDescribed, _): return try propertyList(item, path: path)
            case (Tag.unsigned, .bytes(let bytes)):
                guard let number = Self.number(bytes) else { break }
                guard keepsWidths else { return plain(number) }
                switch bytes.count {
                case 2: return .uint16(UInt16(number))
                case 4: return .uint32(UInt32(number))
                case 8: return .uint64(number)
                default: return plain(number)
                }
            case (Tag.negative, .bytes(let bytes)):
                guard let number = Self.number(bytes).flatMap(Int64.init(exactly:)) else { break }
                return .int64(~number)
            case (Tag.dateText, .text(let text)):
                guard let microseconds = ISO8601Date.microseconds(from: text) else { break }
                return .date(microsecondsSince1970: microseconds)
            case (Tag.seconds, .double(let seconds)):
                guard let microseconds = PropertyListCBOR.microseconds(seconds) else { break }
                return .date(microsecondsSince1970: microseconds)
            case (Tag.seconds, let number):
                guard let microseconds = Self.microseconds(number, times: 1_000_000) else { break }
                return .date(microsecondsSince1970: microseconds)
            case (Tag.extendedTime, .map(let entries)):
                guard let microseconds = Self.extendedTime(entries) else { break }
                return .date(microsecondsSince1970: microseconds)
            case (Tag.dateText, _), (Tag.unsigned, _), (Tag.negative, _), (Tag.extendedTime, _): break
            // Any other tag of a text or of bytes names the purpose, such as an address or a UUID. The value is valid
            // without it.
            case (_, .text), (_, .bytes): return try propertyList(item, path: path)
            default: throw Failure(description: "\(path): a value with the tag \(tag) is not a property-list value")
            }
            throw Failure(description: "\(path): the value with the tag \(tag) is invalid or out of range")
        }

        /// Returns the number of a bignum in big-endian bytes; nil beyond 64 bits.
        private static func number(_ bytes: [UInt8]) -> UInt64? {
            let digits = bytes.drop { $0 == 0 }
            guard digits.count <= 8 else { return nil }
            return digits.reduce(0) { $0 << 8 | UInt64($1) }
        }

        /// Returns a CBOR integer; nil beyond 64 bits, and for other items.
        private static func integer(_ item: CBOR) -> Int64? {
            switch item {
            case .unsigned(let number, _): Int64(exactly: number)
            case .negative(let number, _): Int64(exactly: number).map(~)
            default: nil
            }
        }

        /// Returns an integer in another unit as microseconds; nil beyond 64 bits.
        private static func microseconds(_ item: CBOR, times factor: Int64) -> Int64? {
            guard let number = integer(item) else { return nil }
            let (product, isBeyond) = number.multipliedReportingOverflow(by: factor)
            return isBeyond ? nil : product
        }

        /// Returns the time of an RFC 9581 map: key 1 holds whole seconds, keys -3, -6 and -9 a fraction in
        /// milliseconds, microseconds or nanoseconds. Other keys, for the accuracy or the time zone, are ignored.
        private static func extendedTime(_ entries: [CBOR.Entry]) -> Int64? {
            var sum: Int64 = 0
            for entry in entries {
                guard let key = integer(entry.key) else { continue }
                let part: Int64?
                switch key {
                case 1: part = microseconds(entry.value, times: 1_000_000)
                case -3: part = microseconds(entry.value, times: 1000)
                case -6: part = integer(entry.value)
                case -9: part = integer(entry.value).map { $0 / 1000 }
                default: continue
                }
                guard let part, case (let next, false) = sum.addingReportingOverflow(part) else { return nil }
                sum = next
            }
            return entries.contains { integer($0.key) == 1 } ? sum : nil
        }
    }
}
