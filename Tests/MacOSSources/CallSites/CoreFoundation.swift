// SPDX-License-Identifier: Apache-2.0
// instead of:
//     let c = CFNotificationCenterGetDistributedCenter()
import Carillon
import Foundation

func coreFoundation() {
    DistributedNotificationCenter.default().postNotificationName(
        .init("com.example.x"), object: nil, userInfo: nil, deliverImmediately: true)
}
