// SPDX-License-Identifier: Apache-2.0
/// A name of a connection on a D-Bus bus: a ``UniqueName``, a ``WellKnownName``, or ``AnyBusName`` for either. The
/// syntax is that of the D-Bus specification, section "Bus names".
public protocol BusName: BusSyntax {}

/// The name that the bus assigned to a connection, such as `:1.42`. The bus does not reuse it during its lifetime.
public struct UniqueName: BusName, Comparable {
    public let rawValue: String

    public init(unchecked rawValue: String) {
        self.rawValue = rawValue
    }

    /// Whether a text is a colon with elements behind it, which may begin with a digit.
    public static func isValid(_ text: String) -> Bool {
        text.utf8.first == UInt8(ascii: ":") && elements(of: text.utf8.dropFirst(), mayBeginWithDigit: true) != nil
            && text.utf8.count <= longestBusName
    }

    /// Compares the texts. The order is the same in each process, and is not that of age.
    public static func < (left: UniqueName, right: UniqueName) -> Bool {
        left.rawValue < right.rawValue
    }

    /// Whether this connection joined the bus before the other one. Buses number their connections, so that a shorter
    /// name has a smaller number.
    public func isOlder(than other: UniqueName) -> Bool {
        let (count, others) = (rawValue.utf8.count, other.rawValue.utf8.count)
        return count == others ? rawValue < other.rawValue : count < others
    }
}

/// The name that a connection has requested from the bus, such as `org.example.App`.
public struct WellKnownName: BusName {
    public let rawValue: String

    public init(unchecked rawValue: String) {
        self.rawValue = rawValue
    }

    /// Whether a text has at least two elements, which do not begin with a digit.
    public static func isValid(_ text: String) -> Bool {
        (elements(of: text.utf8[...], mayBeginWithDigit: false) ?? 0) >= 2 && text.utf8.count <= longestBusName
    }
}

/// A unique or a well-known name, as the sender or the destination of a message may have.
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

    /// The name as a unique name; nil for a well-known name.
    public var unique: UniqueName? {
        rawValue.utf8.first == UInt8(ascii: ":") ? UniqueName(unchecked: rawValue) : nil
    }

    /// The name as a well-known name; nil for a unique name.
    public var wellKnown: WellKnownName? {
        rawValue.utf8.first == UInt8(ascii: ":") ? nil : WellKnownName(unchecked: rawValue)
    }
}

/// The maximum length of a bus name, in bytes.
private let longestBusName = 255

/// Returns the number of elements between the dots of a name; nil if an element is empty or has an invalid character.
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
