// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func objectFilter(_ handler: @escaping @Sendable (String) -> Void) -> any NSObjectProtocol {
    DistributedNotificationCenter.default().addObserver(
        forName: nil, object: "com.apple.Music", queue: OperationQueue()
    ) { note in
        guard let info = note.userInfo as? [String: Any], let title = info["Name"] as? String else { return }
        handler(title)
    }
}
