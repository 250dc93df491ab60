// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

final class ThemeChanged: @unchecked Sendable {
    private var token: NSObjectProtocol?

    func start() {
        token = DistributedNotificationCenter.default().addObserver(
            forName: Notification.Name("AppleInterfaceThemeChangedNotification"), object: nil, queue: .main
        ) { [weak self] _ in
            self?.update()
        }
    }

    func update() {}

    deinit {
        if let token { DistributedNotificationCenter.default().removeObserver(token) }
    }
}
