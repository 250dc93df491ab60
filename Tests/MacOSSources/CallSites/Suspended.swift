// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func suspended(_ isActive: Bool) -> Bool {
    DistributedNotificationCenter.default().suspended = !isActive
    return DistributedNotificationCenter.forType(.localNotificationCenterType).suspended
}
