// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The center that a notification queue posts to: a center of these libraries, Foundation's, or the program's own.
public protocol NotificationPosting: AnyObject, Sendable {
    /// Delivers a notification on the calling thread, or passes it to the threads of the observers.
    func post(_ notification: Notification)
}

extension Foundation.NotificationCenter: NotificationPosting {}
