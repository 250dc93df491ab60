// SPDX-License-Identifier: Apache-2.0
import Foundation
import LocalNotifications

// Where both modules are imported, a name of one's own says which is meant.
typealias NotificationCenter = LocalNotifications.NotificationCenter
typealias NotificationQueue = LocalNotifications.NotificationQueue

extension Notification.Name {
    static let a = Notification.Name("A")
    static let b = Notification.Name("B")
    static let c = Notification.Name("C")
}

/// A sender without equality.
final class Sender: Sendable {}
