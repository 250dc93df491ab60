// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

extension Notification.Name {
    static let interfaceThemeChanged = Notification.Name("AppleInterfaceThemeChangedNotification")
    static let documentSaved = Notification.Name("com.example.documentSaved")
    static let quit = Notification.Name("com.example.quit")
}

/// State of the main actor that a block on the main queue changes.
@MainActor
final class Appearance {
    private(set) var changes = 0
    private var token: (any NSObjectProtocol)?
    var onChange: (Int) -> Void = { _ in }

    func start() {
        token = DistributedNotificationCenter.default().addObserver(
            forName: .interfaceThemeChanged, object: nil, queue: .main
        ) { [weak self] notification in
            let object = notification.object as? String
            MainActor.assumeIsolated {
                self?.changed(object)
            }
        }
    }

    func stop() {
        if let token {
            DistributedNotificationCenter.default().removeObserver(token)
        }
        token = nil
    }

    private func changed(_ object: String?) {
        changes += 1
        onChange(changes)
    }
}
