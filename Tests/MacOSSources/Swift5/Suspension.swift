// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// What an application delegate does with `suspended`.
final class AppDelegate: NSObject {
    let center = DistributedNotificationCenter.default()

    func applicationDidBecomeActive() {
        center.suspended = false
    }

    func applicationDidResignActive() {
        center.suspended = true
    }

    static func describe(_ behavior: DistributedNotificationCenter.SuspensionBehavior) -> String {
        switch behavior {
        case .drop: return "drop"
        case .coalesce: return "coalesce"
        case .hold: return "hold"
        case .deliverImmediately: return "deliverImmediately"
        @unknown default: return "?"
        }
    }

    /// The values that other code of a program keeps in files.
    static func checkRawValues() -> Bool {
        typealias Behavior = DistributedNotificationCenter.SuspensionBehavior
        let texts = (0...5 as ClosedRange<UInt>).map { Behavior(rawValue: $0).map(describe) ?? "nil" }
        let options: DistributedNotificationCenter.Options = [.deliverImmediately, .postToAllSessions]
        let kind = DistributedNotificationCenter.CenterType(rawValue: "NSLocalNotificationCenterType")
        return texts == ["nil", "drop", "coalesce", "hold", "deliverImmediately", "nil"]
            && options.rawValue == 3 && options.contains(.deliverImmediately)
            && DistributedNotificationCenter.Options(rawValue: 2) == .postToAllSessions
            && kind == .localNotificationCenterType
            && DistributedNotificationCenter.CenterType("other") != kind
            && Behavior.hold.rawValue == 3
            && Set([kind, .localNotificationCenterType]).count == 1
    }
}
