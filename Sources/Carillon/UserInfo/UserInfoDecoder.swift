// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// Turns property-list values into what a Swift program expects in a userInfo.
enum UserInfoDecoder {
    static func decode(_ userInfo: [String: PropertyList]) -> [AnyHashable: Any] {
        var result: [AnyHashable: Any] = Dictionary(minimumCapacity: userInfo.count)
        for (key, value) in userInfo { result[key] = decode(value) }
        return result
    }

    /// The same for one that arrived, without what it would be in between.
    static func decode(_ userInfo: UserInfoBytes) -> [AnyHashable: Any] {
        var result: [AnyHashable: Any] = Dictionary(minimumCapacity: min(userInfo.valueCount, 64))
        userInfo.forEachEntry { result[$0] = decode($1) }
        return result
    }

    /// 64-bit integers, floating point and booleans are Swift's own, and none of these passes for another. Integers of other
    /// widths come as `NSNumber`, which `as?` turns into any integer type that can hold them: a program in another
    /// language chooses widths by its own habits, and `as? Int` is what a reader writes. 0 and 1 among them are read by `as? Bool`,
    /// too, as every `NSNumber` of them.
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
