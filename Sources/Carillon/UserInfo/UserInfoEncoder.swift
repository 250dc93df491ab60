// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire
import Foundation

/// The conversion of a userInfo with Swift and Foundation types into property-list values of the wire. It refuses
/// values of other types, with the path to the first one (N3).
///
/// The article *Property lists between processes* lists the types, and their types on arrival.
enum UserInfoEncoder {
    /// Returns the entries of a userInfo in no order. The result is an array, because a post needs no dictionary, which
    /// would cost the hashing of each key.
    ///
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` with the path to the first value
    ///   that is not a property-list value.
    static func entries(
        of userInfo: [AnyHashable: Any]
    ) throws(DistributedNotificationError) -> [(key: String, value: PropertyList)] {
        do throws(Fault) {
            // Keys of different types, such as String and NSString, may have the same text. A dictionary then removes
            // duplicates.
            guard userInfo.keys.allSatisfy({ type(of: $0.base) == String.self }) else {
                return Array(try encode(entries: userInfo, depth: 0))
            }
            var result: [(key: String, value: PropertyList)] = []
            result.reserveCapacity(userInfo.count)
            for (key, value) in userInfo { result.append(try encode(key, value, depth: 0)) }
            return result
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo" + error.path, reason: error.reason)
        }
    }

    /// Returns the entries as a dictionary.
    static func encode(_ userInfo: [AnyHashable: Any]) throws(DistributedNotificationError) -> [String: PropertyList] {
        Dictionary(uniqueKeysWithValues: try entries(of: userInfo).lazy.map { ($0.key, $0.value) })
    }

    /// Encodes a single value of a property-list type, if the wire format can carry it.
    ///
    /// - Parameter path: the path to the value, below the userInfo.
    static func value(_ value: Any, at path: () -> String) throws(DistributedNotificationError) -> PropertyList {
        do throws(Fault) {
            return try encode(value, depth: 0)
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo" + path() + error.path, reason: error.reason)
        }
    }

    /// Throws if a value is nested too deep.
    ///
    /// - Parameters:
    ///   - depth: the number of collections around the collection that holds a value.
    ///   - path: the path to the value, below the userInfo.
    static func checkDepth(_ depth: Int, at path: () -> String) throws(DistributedNotificationError) {
        do throws(Fault) {
            try checkDepth(depth)
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo" + path(), reason: error.reason)
        }
    }

    /// Encodes a value of any property-list type.
    ///
    /// - Parameter depth: the number of collections around the value.
    fileprivate static func encode(_ value: Any, depth: Int) throws(Fault) -> PropertyList {
        // Most values have one of these types. A comparison of two pointers is faster than a cast to a protocol, which
        // searches tables.
        let valueType = type(of: value)
        if valueType == String.self { return try (value as! String).propertyList(depth: depth) }
        if valueType == Int.self { return (value as! Int).propertyList(depth: depth) }
        if valueType == Data.self { return (value as! Data).propertyList(depth: depth) }
        if valueType == Double.self { return (value as! Double).propertyList(depth: depth) }
        if valueType == Bool.self { return (value as! Bool).propertyList(depth: depth) }
        guard let value = value as? any PropertyListEncodable else {
            throw Fault(
                "\(valueType) is not a property-list type: those are strings, integers, floating point, booleans, "
                    + "Data, Date, arrays and dictionaries with String keys")
        }
        return try value.propertyList(depth: depth)
    }

    /// Encodes a dictionary. Of keys with the same text, the last one counts.
    fileprivate static func encode(
        entries: some Sequence<(key: AnyHashable, value: Any)>, depth: Int
    ) throws(Fault) -> [String: PropertyList] {
        try checkDepth(depth)
        var result: [String: PropertyList] = [:]
        for (key, value) in entries {
            let (text, value) = try encode(key, value, depth: depth)
            result[text] = value
        }
        return result
    }

    /// Encodes an entry of a dictionary.
    ///
    /// - Parameter depth: the number of collections around the dictionary.
    private static func encode(
        _ key: AnyHashable, _ value: Any, depth: Int
    ) throws(Fault) -> (key: String, value: PropertyList) {
        guard let text = key.base as? String else {
            throw Fault("the key is of type \(type(of: key.base)), and must be a String").inside("[\(key)]")
        }
        do throws(Fault) {
            _ = try text.propertyList(depth: depth)
            return (text, try encode(value, depth: depth + 1))
        } catch {
            throw error.inside(".\(text)")
        }
    }

    /// Encodes an array.
    fileprivate static func encode(elements: some Sequence, depth: Int) throws(Fault) -> PropertyList {
        try checkDepth(depth)
        var result: [PropertyList] = []
        for element in elements {
            do throws(Fault) {
                result.append(try encode(element, depth: depth + 1))
            } catch {
                throw error.inside("[\(result.count)]")
            }
        }
        return .array(result)
    }

    /// Checks the depth before the recursion, which would never end for a collection that contains itself.
    private static func checkDepth(_ depth: Int) throws(Fault) {
        guard depth < maxDepth else { throw Fault("collections are nested more than \(maxDepth) deep") }
    }

    /// The limit of the service's interface for nested collections.
    private static let maxDepth = Limits.row(.userInfoDepth).hardMaximum
}

/// The reason of a refusal, and the path to the refused value. Each collection adds its part of the path while the
/// error passes through it.
private struct Fault: Error {
    let reason: String
    var path = ""

    init(_ reason: String) {
        self.reason = reason
    }

    /// Returns the fault with the key or index of the surrounding collection in front of its path.
    func inside(_ component: String) -> Fault {
        var outer = self
        outer.path = component + path
        return outer
    }
}

/// A type with a property-list representation. Values are cast to this protocol, and not to each concrete type: a cast
/// to a concrete number type would accept any `NSNumber` and lose its own type.
private protocol PropertyListEncodable {
    /// Encodes the value.
    ///
    /// - Parameter depth: the number of collections around the value.
    func propertyList(depth: Int) throws(Fault) -> PropertyList
}

// MARK: Swift types

extension String: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        guard !holdsNUL else { throw Fault("a string between processes can't contain a NUL character") }
        return .string(self)
    }
}
extension Bool: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .boolean(self) }
}
extension Int: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .int64(Int64(self)) }
}
extension Int8: PropertyListEncodable {
    // D-Bus has no signed byte.
    fileprivate func propertyList(depth: Int) -> PropertyList { .int16(Int16(self)) }
}
extension Int16: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .int16(self) }
}
extension Int32: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .int32(self) }
}
extension Int64: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .int64(self) }
}
extension UInt: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .uint64(UInt64(self)) }
}
extension UInt8: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .uint8(self) }
}
extension UInt16: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .uint16(self) }
}
extension UInt32: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .uint32(self) }
}
extension UInt64: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .uint64(self) }
}
extension Double: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .double(self) }
}
extension Float: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .double(Double(self)) }
}
extension Array: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        try UserInfoEncoder.encode(elements: self, depth: depth)
    }
}
extension Dictionary: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        let entries = lazy.map { (key: AnyHashable($0.key), value: $0.value as Any) }
        return .dictionary(try UserInfoEncoder.encode(entries: entries, depth: depth))
    }
}
/// An optional that became an `Any`. It arrives as its wrapped value, as on macOS.
extension Optional: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        guard let wrapped = self else { throw Fault("nil is not a property-list value; leave the key out") }
        return try UserInfoEncoder.encode(wrapped, depth: depth)
    }
}

// MARK: Foundation types

extension CGFloat: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .double(Double(self)) }
}
extension Data: PropertyListEncodable {
    // The bytes are copied as one block. The iterator would copy them one by one.
    fileprivate func propertyList(depth: Int) -> PropertyList { .data(withUnsafeBytes { Array($0) }) }
}
extension Date: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        let microseconds = (timeIntervalSince1970 * 1_000_000).rounded()
        guard let microseconds = Int64(exactly: microseconds) else {
            throw Fault("a date that far from 1970 can't be expressed in microseconds")
        }
        return .date(microsecondsSince1970: microseconds)
    }
}
extension NSString: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        try String(describing: self).propertyList(depth: depth)
    }
}
extension NSNumber: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        // Foundation has one object for each of the two booleans. The type code of a boolean is that of a signed byte.
        if self === NSNumber(value: true) { return .boolean(true) }
        if self === NSNumber(value: false) { return .boolean(false) }
        if self is NSDecimalNumber { throw Fault("a decimal number would change its value in binary floating point") }
        switch UInt8(bitPattern: objCType.pointee) {
        case UInt8(ascii: "f"), UInt8(ascii: "d"): return .double(doubleValue)
        case UInt8(ascii: "Q") where uint64Value > Int64.max: return .uint64(uint64Value)
        default: return .int64(int64Value)
        }
    }
}
extension NSData: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .data(Array(Data(referencing: self))) }
}
extension NSDate: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        try Date(timeIntervalSinceReferenceDate: timeIntervalSinceReferenceDate).propertyList(depth: depth)
    }
}
extension NSArray: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        try UserInfoEncoder.encode(elements: self, depth: depth)
    }
}
extension NSDictionary: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        let entries = self.map { entry in
            (
                key: (entry.key as? AnyHashable) ?? AnyHashable(ObjectIdentifier(entry.key as AnyObject)),
                value: entry.value
            )
        }
        return .dictionary(try UserInfoEncoder.encode(entries: entries, depth: depth))
    }
}
