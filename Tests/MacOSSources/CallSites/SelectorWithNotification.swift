// SPDX-License-Identifier: Apache-2.0
// changed: selector: #selector(changed(_:)) => method: SelectorWithNotification.changed(_:)
import Carillon
import Foundation

@MainActor
final class SelectorWithNotification: NSObject {
    func start() {
        let center = DistributedNotificationCenter.default()
        center.addObserver(
            self, method: SelectorWithNotification.changed(_:), name: .init("com.example.changed"),
            object: "com.example",
            suspensionBehavior: .deliverImmediately)
    }

    func changed(_ notification: NSNotification) {
        print(notification.userInfo?["key"] as? String ?? "")
    }
}
