// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The center that a notification queue posts to: the centers of these libraries, Foundation's, or one of the program's own.
public protocol NotificationPosting: AnyObject, Sendable {
    /// Delivers a notification, on the calling thread, or hands it over from there.
    func post(_ notification: Notification)
}

extension Foundation.NotificationCenter: NotificationPosting {}
