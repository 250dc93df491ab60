// SPDX-License-Identifier: Apache-2.0
// changed: let center: NotificationCenter => let center: DistributedNotificationCenter
import Carillon
import Foundation

struct CenterAsSuperclass {
    let center: DistributedNotificationCenter = DistributedNotificationCenter.default()

    func post() { center.post(name: .init("com.example.x"), object: nil) }
}
