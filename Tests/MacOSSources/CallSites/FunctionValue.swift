// SPDX-License-Identifier: Apache-2.0
// changed: = DistributedNotificationCenter.default => = { .default }
import Carillon
import Foundation

struct FunctionValue {
    var center: () -> DistributedNotificationCenter = { .default }
}
