// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding and decoding of the options of the method ``AddObserver``.
extension ObserverOptions {
    /// Reads the options, the next `a{sv}` of the arguments.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value, and for
    ///   a suspension behavior of a monitor, which is never suspended.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        var hasBehavior = false
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "suspension-behavior":
                suspensionBehavior = try option.choice()
                hasBehavior = true
            case "automatic-suspension": automaticSuspension = try option.boolean()
            case "run-loop-mode": runLoopMode = try option.choice()
            case "monitor": isMonitor = try option.boolean()
            case "retained": wantsRetained = try option.boolean()
            case "minimum-interval": minimumInterval = try option.number()
            default: throw option.unknown
            }
        }
        if isMonitor, hasBehavior {
            throw .invalidOption("suspension-behavior", reason: "an observer with monitor is never suspended")
        }
    }

    /// Appends the options as an `a{sv}`; those with default values are left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if suspensionBehavior != .coalesce, !isMonitor {
                writer.entry("suspension-behavior", suspensionBehavior.rawValue)
            }
            if !automaticSuspension { writer.entry("automatic-suspension", false) }
            if runLoopMode != .default { writer.entry("run-loop-mode", runLoopMode.rawValue) }
            if isMonitor { writer.entry("monitor", true) }
            if wantsRetained { writer.entry("retained", true) }
            if minimumInterval > 0 { writer.entry("minimum-interval", minimumInterval) }
        }
    }
}
