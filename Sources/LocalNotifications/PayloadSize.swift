// SPDX-License-Identifier: Apache-2.0
import Foundation

/// An estimate of the memory that a waiting notification keeps, in bytes, by which queues are bounded (T2).
///
/// Values count with all their content: texts, data, collections, structs. An object counts with the values in its own
/// properties, and without other objects, which usually have other owners as well. A sender that is an object does not
/// count.
enum PayloadSize {
    /// The additional size of an entry in a queue, in bytes.
    static let ofEntry = 128

    /// Returns the estimate for a notification with its userInfo. The constants are sizes of Foundation's storage.
    static func of(_ notification: Notification) -> Int {
        var meter = Meter()
        var size = 128 + notification.name.rawValue.utf8.count
        if let object = notification.object, !(type(of: object) is AnyClass) { size += meter.size(of: object) }
        if let userInfo = notification.userInfo {
            size += userInfo.capacity * 72
            for (key, value) in userInfo { size += meter.size(of: key.base) + meter.size(of: value) }
        }
        return size
    }
}

/// The measurement of the values of one notification. It examines at most 4,096 values and 32 levels, to
/// limit the time of a post. The size of a larger collection is estimated from its first elements.
private struct Meter {
    /// The number of values that may still be examined.
    private var budget = 4_096
    /// The number of values around the currently examined value.
    private var depth = 0

    /// Returns the bytes that `value` has outside of its inline storage, which its container counts.
    mutating func size(of value: Any) -> Int {
        guard budget > 0, depth < 32 else { return 0 }
        budget -= 1
        depth += 1
        defer { depth -= 1 }
        let type = _openExistential(value, do: typeOfValue)
        // In an `Any`, a value of more than 24 bytes is stored in a box with a header of 16 bytes.
        if type.isPlain { return type.size > 24 ? type.size + 16 : 0 }
        if let weighed = value as? any SizeMeasurable { return weighed.measureContent(&self) }
        let own = type.isObject ? 16 : type.size
        return own + parts(of: Mirror(reflecting: value), withObjects: !type.isObject)
    }

    /// Returns the bytes of the properties of a struct, an enum or an object, found by reflection.
    ///
    /// - Parameter withObjects: whether objects of known types in the properties count; other objects never do.
    private mutating func parts(of mirror: Mirror, withObjects: Bool) -> Int {
        var size = 0
        var next: Mirror? = mirror
        while let current = next {
            for child in current.children where budget > 0 {
                let isObject = type(of: child.value) is AnyClass
                guard !isObject || (withObjects && child.value is any SizeMeasurable) else { continue }
                size += self.size(of: child.value)
            }
            next = current.superclassMirror
        }
        return size
    }

    /// Returns the bytes of the elements of a collection, without their inline storage, which the caller counts. If the
    /// budget ends, the average of the examined elements is extrapolated.
    mutating func elements(of collection: some Collection) -> Int {
        var (size, seen) = (0, 0)
        for element in collection {
            guard budget > 0 else { break }
            size += self.size(of: element)
            seen += 1
        }
        return seen == 0 ? 0 : size / seen * collection.count + size % seen
    }
}

/// The properties of a value's type: whether the value has no references (`isPlain`), whether it is an object, and its
/// inline size in bytes.
private func typeOfValue<Value>(_: Value) -> (isPlain: Bool, isObject: Bool, size: Int) {
    (_isPOD(Value.self), Value.self is AnyClass, MemoryLayout<Value>.size)
}

/// A type whose content is measured without reflection.
private protocol SizeMeasurable {
    /// Returns the bytes outside of the value's inline storage.
    func measureContent(_ meter: inout Meter) -> Int
}

extension SizeMeasurable where Self: Collection {
    fileprivate func measureElements(_ meter: inout Meter) -> Int {
        32 + count * MemoryLayout<Element>.stride + (_isPOD(Element.self) ? 0 : meter.elements(of: self))
    }
}

extension String: SizeMeasurable {
    // Up to 15 bytes are stored in the value itself.
    fileprivate func measureContent(_ meter: inout Meter) -> Int { utf8.count > 15 ? utf8.count + 32 : 0 }
}

extension Substring: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { base.utf8.count + 32 }
}

extension Data: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { count + 64 }
}

extension Array: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { measureElements(&meter) }
}

extension ContiguousArray: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { measureElements(&meter) }
}

extension ArraySlice: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { measureElements(&meter) }
}

extension Set: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { measureElements(&meter) }
}

extension Dictionary: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { measureElements(&meter) }
}

extension AnyHashable: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { meter.size(of: base) }
}

extension Optional: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { map { meter.size(of: $0) } ?? 0 }
}

extension NSData: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { length + 64 }
}

extension NSString: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int { (self as String).utf8.count + 64 }
}

extension NSArray: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int {
        var size = 64 + 16 * count
        for element in self { size += meter.size(of: element) }
        return size
    }
}

extension NSDictionary: SizeMeasurable {
    fileprivate func measureContent(_ meter: inout Meter) -> Int {
        var size = 64 + 64 * count
        for (key, value) in self { size += meter.size(of: key) + meter.size(of: value) }
        return size
    }
}
