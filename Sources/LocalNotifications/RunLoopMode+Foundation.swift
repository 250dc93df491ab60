// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation

extension RunLoopMode {
    /// Creates the mode that corresponds to a mode of Foundation's run loop. The default and the common modes become
    /// those of a main context. AppKit's modes for modal panels and event tracking become ``modalPanel`` and
    /// ``eventTracking``. Any other mode keeps its name.
    public init(_ mode: RunLoop.Mode) {
        switch mode {
        case .default: self = .default
        case .common: self = .common
        case RunLoop.Mode("NSModalPanelRunLoopMode"): self = .modalPanel
        case RunLoop.Mode("NSEventTrackingRunLoopMode"): self = .eventTracking
        default: self.init(rawValue: mode.rawValue)
        }
    }
}
