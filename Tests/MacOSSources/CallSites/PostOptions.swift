// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func postOptions(_ info: [String: Any]) {
    let center = DistributedNotificationCenter.default()
    center.postNotificationName(
        .init("com.example.changed"), object: nil, userInfo: info, options: [.deliverImmediately, .postToAllSessions])
}
