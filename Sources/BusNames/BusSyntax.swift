// SPDX-License-Identifier: Apache-2.0
/// A text that the D-Bus specification gives a syntax. libdbus treats a malformed one as a programming error, so every
/// name is checked here once and carried as a type of its own from then on.
public protocol BusSyntax: RawRepresentable, Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral
where RawValue == String, StringLiteralType == String {
    /// Takes `rawValue` as it is; callers have checked it. For this module and `CarillonDBus` only, which a test holds.
    init(unchecked rawValue: String)
    /// Whether `text` follows the syntax.
    static func isValid(_ text: String) -> Bool
}

extension BusSyntax {
    /// Nil when `rawValue` does not follow the syntax.
    public init?(rawValue: String) {
        guard !rawValue.utf8.contains(0), Self.isValid(rawValue) else { return nil }
        self.init(unchecked: rawValue)
    }

    /// A literal with the wrong syntax is a programmer's error. Debug builds check; literals are on the hot path.
    public init(stringLiteral value: String) {
        assert(Self.isValid(value), "not a valid \(Self.self): \(value)")
        self.init(unchecked: value)
    }

    public var description: String { rawValue }
}
