// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

protocol CrossProcessCenter {
    func postNotificationName(
        _ name: NSNotification.Name, object: String?, userInfo: [AnyHashable: Any]?, deliverImmediately: Bool)
    func addObserver(
        forName name: NSNotification.Name?, object obj: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol
    func removeObserver(_ observer: Any)
}

extension DistributedNotificationCenter: CrossProcessCenter {}

struct Poster {
    var center: any CrossProcessCenter = DistributedNotificationCenter.default()

    func quit() {
        center.postNotificationName(.init("com.example.quit"), object: nil, userInfo: nil, deliverImmediately: true)
    }
}
