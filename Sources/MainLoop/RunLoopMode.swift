// SPDX-License-Identifier: Apache-2.0
/// A run-loop mode of a main context, with Cocoa's meaning (M1). A source states in which modes it may be dispatched. A
/// program enters a mode for a period (`MainContext.run(mode:until:)`, ``MainContext/pushMode(_:)``), and only the
/// sources of that mode run in it.
///
/// Modes are compared by their texts, and any text is a mode. The named modes have their own numbers in the table of
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

    /// The normal mode of a loop, and the base of each context's stack.
    public static let `default`: RunLoopMode = "default"
    /// The mode in which a modal dialogue waits for its answer.
    public static let modalPanel: RunLoopMode = "modal-panel"
    /// The mode while the pointer drags, a slider moves or a menu is open.
    public static let eventTracking: RunLoopMode = "event-tracking"
    /// A placeholder for a set of modes, the *common modes* of the context; no loop can be in this mode itself. At
    /// first the set has the three modes above. A program can add modes to it (``MainContext/addCommonMode(_:)``).
    public static let common: RunLoopMode = "common"
}
