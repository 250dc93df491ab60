// SPDX-License-Identifier: Apache-2.0
/// What a program's loop is busy with (M1): a source says in which modes it may be dispatched, and a program enters a
/// mode for a while (`MainContext.run(mode:until:)`, ``MainContext/pushMode(_:)``).
///
/// Modes are compared by their texts. Any text is a mode; the named ones have numbers of their own in the table of
/// priorities (``EventSource/Priority/of(_:in:)``).
public struct RunLoopMode: RawRepresentable, Hashable, Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public init(_ name: String) {
        rawValue = name
    }

    public init(stringLiteral name: String) {
        rawValue = name
    }

    public var description: String { rawValue }

    /// What a loop does when nothing special goes on: the base of each context's stack.
    public static let `default`: RunLoopMode = "default"
    /// A modal dialogue waits for its answer.
    public static let modalPanel: RunLoopMode = "modal-panel"
    /// The pointer drags something, a slider moves, a menu is open.
    public static let eventTracking: RunLoopMode = "event-tracking"
    /// Not a mode that a loop can be in, but every mode of a set that belongs to the context and that a program can
    /// extend (``MainContext/addCommonMode(_:)``). At first these are the three above.
    public static let common: RunLoopMode = "common"
}
