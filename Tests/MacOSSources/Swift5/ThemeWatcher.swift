// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// Follows the dark mode, as menu bar programs do.
final class ThemeWatcher {
    private var observer: NSObjectProtocol?
    private let center = DistributedNotificationCenter.default()
    private(set) var changes = 0

    var isDark: Bool {
        UserDefaults.standard.string(forKey: "AppleInterfaceStyle") == "Dark"
    }

    func start(_ handler: @escaping (Int, Bool) -> Void) {
        guard observer == nil else { return }
        observer = center.addObserver(forName: .interfaceThemeChanged, object: nil, queue: .main) { [weak self] _ in
            guard let self = self else { return }
            self.changes += 1
            handler(self.changes, self.isDark)
        }
    }

    deinit {
        if let observer = observer {
            center.removeObserver(observer)
        }
    }
}
