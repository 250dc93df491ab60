// SPDX-License-Identifier: Apache-2.0
/// A text that follows a syntax of the D-Bus specification, such as a bus name or an object path. libdbus treats a
/// malformed text as a programming error, and may end the process. Therefore a text from outside is checked once, by
/// ``init(rawValue:)``. From then on its type shows that it is valid.
public protocol BusSyntax: RawRepresentable, Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral
where RawValue == String, StringLiteralType == String {
    /// Takes a text without a check, because the caller has checked it. Only this module and `CarillonDBus` may use it;
    /// a test enforces that.
    init(unchecked rawValue: String)
    /// Whether `text` follows the syntax.
    static func isValid(_ text: String) -> Bool
}

extension BusSyntax {
    /// Checks the syntax of a text; nil if the text violates it.
    public init?(rawValue: String) {
        guard !rawValue.utf8.contains(0), Self.isValid(rawValue) else { return nil }
        self.init(unchecked: rawValue)
    }

    /// Takes a literal of the source. A literal with an invalid syntax is a programming error. Only debug builds check
    /// it, since literals are used on the hot path.
    public init(stringLiteral value: String) {
        assert(Self.isValid(value), "not a valid \(Self.self): \(value)")
        self.init(unchecked: value)
    }

    public var description: String { rawValue }
}
