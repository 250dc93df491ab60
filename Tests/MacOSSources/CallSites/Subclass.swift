// SPDX-License-Identifier: Apache-2.0
// instead of:
//     final class Spy: DistributedNotificationCenter { override func post(name: Notification.Name, object: Any?) {} }
import Carillon
import Foundation

protocol Posting {
    func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?)
}

extension DistributedNotificationCenter: Posting {}

final class Spy: Posting {
    func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?) {}
}
