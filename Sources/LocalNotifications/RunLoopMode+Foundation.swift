// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation

extension RunLoopMode {
    /// Foundation's mode, as it is here: the default and the common modes are those of a main context, AppKit's modes for
    /// modal panels and event tracking are ``modalPanel`` and ``eventTracking``, and any other has its name.
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
