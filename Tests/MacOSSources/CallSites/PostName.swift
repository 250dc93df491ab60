// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

extension Notification.Name {
    static let preferencesChanged = Notification.Name("com.example.preferences-changed")
}

func postName() {
    DistributedNotificationCenter.default().post(name: .preferencesChanged, object: nil)
    DistributedNotificationCenter.default().post(
        name: .preferencesChanged, object: "com.example", userInfo: ["key": "font", "size": 12])
    DistributedNotificationCenter.default().post(Notification(name: .preferencesChanged, object: "com.example"))
}
