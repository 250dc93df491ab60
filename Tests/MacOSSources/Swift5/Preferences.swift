// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// What both NotificationCenter and DistributedNotificationCenter can do, for tests with a fake.
protocol NotificationPosting: AnyObject {
    func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]?)
    func post(_ notification: Notification)
    func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> NSObjectProtocol
    func removeObserver(_ observer: Any)
}

extension NotificationCenter: NotificationPosting {}
extension DistributedNotificationCenter: NotificationPosting {}

extension DistributedNotificationCenter {
    /// A wrapper with a shorter name.
    func send(_ name: Notification.Name, _ info: [String: Any] = [:]) {
        postNotificationName(name, object: nil, userInfo: info, options: .deliverImmediately)
    }
}

/// Tells the other processes of a suite of programs that a setting changed.
final class PreferencesSync {
    private let external: NotificationPosting
    private let `internal`: NotificationPosting
    private var token: NSObjectProtocol?
    private let identifier = ProcessInfo.processInfo.globallyUniqueString

    init(
        external: NotificationPosting = DistributedNotificationCenter.forType(.localNotificationCenterType),
        internal: NotificationPosting = NotificationCenter.default
    ) {
        self.external = external
        self.internal = `internal`
        token = external.addObserver(forName: .preferencesChanged, object: nil, queue: .main) { [identifier] note in
            // Not what this process said itself.
            guard let sender = note.object as? String, sender != identifier else { return }
            `internal`.post(name: .preferencesChanged, object: nil, userInfo: note.userInfo)
        }
    }

    func set(_ values: [String: Any]) {
        external.post(
            Notification(name: .preferencesChanged, object: identifier, userInfo: ["values": values, "version": 2]))
    }

    deinit {
        token.map(external.removeObserver(_:))
    }
}
