// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire
import Foundation

/// Turns a userInfo in Swift or Foundation dress into property-list values, or refuses it (N3).
///
/// What each type becomes, and as what it arrives, is in the article *Property lists between processes*.
enum UserInfoEncoder {
    /// The entries, in no order: whoever lays them out needs no dictionary, which would have to hash each key.
    ///
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` with the way to the first value that
    ///   is none of a property list.
    static func entries(
        of userInfo: [AnyHashable: Any]
    ) throws(DistributedNotificationError) -> [(key: String, value: PropertyList)] {
        do throws(Fault) {
            // Of keys of several types two may be one text.
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

    /// The same as a dictionary.
    static func encode(_ userInfo: [AnyHashable: Any]) throws(DistributedNotificationError) -> [String: PropertyList] {
        Dictionary(uniqueKeysWithValues: try entries(of: userInfo).lazy.map { ($0.key, $0.value) })
    }

    /// A single value that is known to be of a property-list type, if the wire carries it.
    ///
    /// - Parameter path: to it, below the userInfo.
    static func value(_ value: Any, at path: () -> String) throws(DistributedNotificationError) -> PropertyList {
        do throws(Fault) {
            return try encode(value, depth: 0)
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo" + path() + error.path, reason: error.reason)
        }
    }

    /// - Parameters:
    ///   - depth: how many collections the one stands in that holds a value.
    ///   - path: to it, below the userInfo.
    static func checkDepth(_ depth: Int, at path: () -> String) throws(DistributedNotificationError) {
        do throws(Fault) {
            try checkDepth(depth)
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo" + path(), reason: error.reason)
        }
    }

    /// - Parameter depth: of the collection that holds the value.
    fileprivate static func encode(_ value: Any, depth: Int) throws(Fault) -> PropertyList {
        // Most values are of these. A cast to a protocol looks for the type in tables, where this compares two pointers.
        let valueType = type(of: value)
        if valueType == String.self { return try (value as! String).propertyList(depth: depth) }
        if valueType == Int.self { return (value as! Int).propertyList(depth: depth) }
        if valueType == Data.self { return (value as! Data).propertyList(depth: depth) }
        if valueType == Double.self { return (value as! Double).propertyList(depth: depth) }
        if valueType == Bool.self { return (value as! Bool).propertyList(depth: depth) }
        guard let value = value as? any PropertyListEncodable else {
            throw Fault(
                "\(valueType) is no property-list type: those are strings, integers, floating point, booleans, "
                    + "Data, Date, arrays and dictionaries with String keys")
        }
        return try value.propertyList(depth: depth)
    }

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

    /// - Parameter depth: of the collection that holds the entry.
    private static func encode(
        _ key: AnyHashable, _ value: Any, depth: Int
    ) throws(Fault) -> (key: String, value: PropertyList) {
        guard let text = key.base as? String else {
            throw Fault("the key is of type \(type(of: key.base)), and has to be a String").inside("[\(key)]")
        }
        do throws(Fault) {
            _ = try text.propertyList(depth: depth)
            return (text, try encode(value, depth: depth + 1))
        } catch {
            throw error.inside(".\(text)")
        }
    }

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

    /// Before the recursion, which a collection that contains itself would never end.
    private static func checkDepth(_ depth: Int) throws(Fault) {
        guard depth < maxDepth else { throw Fault("collections are nested more than \(maxDepth) deep") }
    }

    private static let maxDepth = Limits.row(.userInfoDepth).hardMaximum
}

/// What is wrong, and the way to it, put together from the inside out.
private struct Fault: Error {
    let reason: String
    var path = ""

    init(_ reason: String) {
        self.reason = reason
    }

    func inside(_ component: String) -> Fault {
        var outer = self
        outer.path = component + path
        return outer
    }
}

/// A type whose values have a place in a property list. A cast to it looks at what a value is, while one to a concrete
/// type would take an `NSNumber` for any number.
private protocol PropertyListEncodable {
    func propertyList(depth: Int) throws(Fault) -> PropertyList
}

// MARK: Swift's types

extension String: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        guard !holdsNUL else { throw Fault("a string between processes can't hold a NUL character") }
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
/// An optional that became an `Any` by accident of typing. On macOS, too, it arrives as what it holds.
extension Optional: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        guard let wrapped = self else { throw Fault("nil is no property-list value; leave the key out") }
        return try UserInfoEncoder.encode(wrapped, depth: depth)
    }
}

// MARK: Foundation's

extension CGFloat: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) -> PropertyList { .double(Double(self)) }
}
extension Data: PropertyListEncodable {
    // Not byte by byte, as by its iterator.
    fileprivate func propertyList(depth: Int) -> PropertyList { .data(withUnsafeBytes { Array($0) }) }
}
extension Date: PropertyListEncodable {
    fileprivate func propertyList(depth: Int) throws(Fault) -> PropertyList {
        let microseconds = (timeIntervalSince1970 * 1_000_000).rounded()
        guard let microseconds = Int64(exactly: microseconds) else {
            throw Fault("a date that far from 1970 can't be told in microseconds")
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
        // Foundation has one object for each of the two booleans; by its type code a boolean is a signed byte.
        if self === NSNumber(value: true) { return .boolean(true) }
        if self === NSNumber(value: false) { return .boolean(false) }
        if self is NSDecimalNumber { throw Fault("a decimal number would arrive as another, in binary floating point") }
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
