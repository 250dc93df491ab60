// SPDX-License-Identifier: Apache-2.0
// changed: selector: #selector(screenDidLock) => method: Selector_.screenDidLock
import Carillon
import Foundation

final class Selector_: Sendable {
    func start() {
        DistributedNotificationCenter.default().addObserver(
            self, method: Selector_.screenDidLock, name: .init("com.apple.screenIsLocked"), object: nil)
    }

    func screenDidLock() {}

    deinit { DistributedNotificationCenter.default().removeObserver(self) }
}
