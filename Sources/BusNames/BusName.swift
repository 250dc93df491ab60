// SPDX-License-Identifier: Apache-2.0
/// The name of a connection on a message bus: a ``UniqueName``, a ``WellKnownName``, or ``AnyBusName`` where it may be
/// either. They follow the D-Bus specification, "Bus names".
public protocol BusName: BusSyntax {}

/// The name that the bus gave to one connection, such as `:1.42`. As long as the bus lives no other connection gets it.
public struct UniqueName: BusName, Comparable {
    public let rawValue: String

    public init(unchecked rawValue: String) {
        self.rawValue = rawValue
    }

    public static func isValid(_ text: String) -> Bool {
        text.utf8.first == UInt8(ascii: ":") && elements(of: text.utf8.dropFirst(), mayBeginWithDigit: true) != nil
            && text.utf8.count <= longestBusName
    }

    /// By their texts: an order that is the same in every process, and means nothing else.
    public static func < (left: UniqueName, right: UniqueName) -> Bool {
        left.rawValue < right.rawValue
    }

    /// Whether this connection came to the bus before the other: buses count them.
    public func isOlder(than other: UniqueName) -> Bool {
        let (count, others) = (rawValue.utf8.count, other.rawValue.utf8.count)
        return count == others ? rawValue < other.rawValue : count < others
    }
}

/// A name that a connection asked the bus for, such as `org.example.App`.
public struct WellKnownName: BusName {
    public let rawValue: String

    public init(unchecked rawValue: String) {
        self.rawValue = rawValue
    }

    public static func isValid(_ text: String) -> Bool {
        (elements(of: text.utf8[...], mayBeginWithDigit: false) ?? 0) >= 2 && text.utf8.count <= longestBusName
    }
}

/// A name of either kind.
public struct AnyBusName: BusName {
    public let rawValue: String

    public init(unchecked rawValue: String) {
        self.rawValue = rawValue
    }

    public init(_ name: some BusName) {
        rawValue = name.rawValue
    }

    public static func isValid(_ text: String) -> Bool {
        UniqueName.isValid(text) || WellKnownName.isValid(text)
    }

    /// The name as one that the bus gave; nil for a well-known one.
    public var unique: UniqueName? {
        rawValue.utf8.first == UInt8(ascii: ":") ? UniqueName(unchecked: rawValue) : nil
    }

    /// The name as one that a connection asked for; nil for a unique one.
    public var wellKnown: WellKnownName? {
        rawValue.utf8.first == UInt8(ascii: ":") ? nil : WellKnownName(unchecked: rawValue)
    }
}

/// In bytes.
private let longestBusName = 255

/// How many elements, with dots between them, a name has; nil when one is empty or has a character that none may have.
private func elements(of text: Substring.UTF8View, mayBeginWithDigit: Bool) -> Int? {
    var count = 0
    var isStart = true
    for byte in text {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
            UInt8(ascii: "-"):
            break
        case UInt8(ascii: "0")...UInt8(ascii: "9"):
            guard !isStart || mayBeginWithDigit else { return nil }
        case UInt8(ascii: "."):
            guard !isStart else { return nil }
            isStart = true
            continue
        default:
            return nil
        }
        if isStart { count += 1 }
        isStart = false
    }
    return isStart ? nil : count
}
