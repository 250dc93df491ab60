// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func stream(of name: Notification.Name) -> AsyncStream<[String: String]> {
    AsyncStream { continuation in
        let center = DistributedNotificationCenter.default()
        nonisolated(unsafe) let observer = center.addObserver(forName: name, object: nil, queue: nil) { note in
            continuation.yield(note.userInfo as? [String: String] ?? [:])
        }
        continuation.onTermination = { _ in center.removeObserver(observer) }
    }
}
