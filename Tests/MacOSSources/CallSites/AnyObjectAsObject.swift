// SPDX-License-Identifier: Apache-2.0
// instead of:
//     DistributedNotificationCenter.default().postNotificationName(.init("com.example.x"), object: NSObject())
import Carillon
import Foundation

func anyObjectAsObject(_ id: Int) {
    DistributedNotificationCenter.default().postNotificationName(
        .init("com.example.x"), object: "\(id)", userInfo: nil, deliverImmediately: false)
}
