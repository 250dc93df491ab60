// SPDX-License-Identifier: Apache-2.0
/// A text with a syntax of the D-Bus specification. libdbus treats a malformed text as a programming error, so each
/// name is checked once, and has a type of its own from then on.
public protocol BusSyntax: RawRepresentable, Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral
where RawValue == String, StringLiteralType == String {
    /// Takes `rawValue` without a check, which the caller has done. For use only in this module and `CarillonDBus`,
    /// which a test enforces.
    init(unchecked rawValue: String)
    /// Whether `text` follows the syntax.
    static func isValid(_ text: String) -> Bool
}

extension BusSyntax {
    /// Nil if `rawValue` violates the syntax.
    public init?(rawValue: String) {
        guard !rawValue.utf8.contains(0), Self.isValid(rawValue) else { return nil }
        self.init(unchecked: rawValue)
    }

    /// A literal with an invalid syntax is a programming error. Only debug builds check it, since literals are on the
    /// hot path.
    public init(stringLiteral value: String) {
        assert(Self.isValid(value), "not a valid \(Self.self): \(value)")
        self.init(unchecked: value)
    }

    public var description: String { rawValue }
}
