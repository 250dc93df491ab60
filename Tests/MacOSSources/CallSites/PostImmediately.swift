// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func postImmediately() {
    DistributedNotificationCenter.default().postNotificationName(
        NSNotification.Name("com.example.reload"), object: Bundle.main.bundleIdentifier, userInfo: nil,
        deliverImmediately: true)
}
