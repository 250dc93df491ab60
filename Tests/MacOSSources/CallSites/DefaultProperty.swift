// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func defaultProperty() {
    DistributedNotificationCenter.default.addObserver(
        forName: .init("com.apple.screenIsLocked"), object: nil, queue: nil
    ) { notification in
        print(notification.name.rawValue)
    }
}
