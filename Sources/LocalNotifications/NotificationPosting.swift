// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What a ``NotificationQueue`` can post to: a center of this module, Foundation's, or one of the program's own.
public protocol NotificationPosting: AnyObject, Sendable {
    /// Delivers a notification, on the calling thread.
    func post(_ notification: Notification)
}

extension NotificationCenter: NotificationPosting {}

extension Foundation.NotificationCenter: NotificationPosting {}
