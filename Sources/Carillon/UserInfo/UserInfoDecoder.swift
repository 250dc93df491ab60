// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// The conversion of property-list values of the wire into the Swift and Foundation types of a notification's userInfo.
enum UserInfoDecoder {
    /// Decodes the entries of a userInfo.
    static func decode(_ userInfo: [String: PropertyList]) -> [AnyHashable: Any] {
        var result: [AnyHashable: Any] = Dictionary(minimumCapacity: userInfo.count)
        for (key, value) in userInfo { result[key] = decode(value) }
        return result
    }

    /// Decodes a received userInfo directly, without a dictionary of property-list values.
    static func decode(_ userInfo: UserInfoBytes) -> [AnyHashable: Any] {
        var result: [AnyHashable: Any] = Dictionary(minimumCapacity: min(userInfo.valueCount, 64))
        userInfo.forEachEntry { result[$0] = decode($1) }
        return result
    }

    /// Decodes a value.
    ///
    /// Signed 64-bit integers, floating-point numbers and booleans become Swift's types, and none of them can be cast
    /// to another. Integers of other types become an `NSNumber`, which `as?` converts into any integer type that can
    /// hold them. The reason is that programs in other languages choose other widths, and Swift programs read with `as?
    /// Int`. As with every `NSNumber`, the numbers 0 and 1 among them can also be read with `as? Bool`.
    static func decode(_ value: PropertyList) -> Any {
        switch value {
        case .string(let value): value
        case .boolean(let value): value
        case .uint8(let value): NSNumber(value: value)
        case .int16(let value): NSNumber(value: value)
        case .uint16(let value): NSNumber(value: value)
        case .int32(let value): NSNumber(value: value)
        case .uint32(let value): NSNumber(value: value)
        case .int64(let value): Int(value)
        case .uint64(let value): NSNumber(value: value)
        case .double(let value): value
        case .data(let bytes): Data(bytes)
        case .date(let microseconds): Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)
        case .array(let elements): elements.map(decode)
        case .dictionary(let entries): entries.mapValues(decode)
        }
    }
}
