// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonWire

/// The adapter through which ``Sessions``, the exchange with other sessions, reads and changes this session's core. It
/// exists while the service has a connection to the session bus.
final class SessionsCenter: Sessions.Center {
    private unowned let driver: CenterDriver
    /// The service's own name on the session bus, which counts as the poster of imported notifications.
    private let uniqueName: UniqueName
    private let announce: (LostPost) -> Void
    private let looksWriting: () -> Bool

    /// - Parameters:
    ///   - driver: the driver of the core.
    ///   - uniqueName: the service's own name on the session bus.
    ///   - announce: queues a loss, which is reported to observers later (``CallQueue/lose(_:)``).
    ///   - isWriting: returns whether many bytes wait to be written to the session bus (``CallQueue/isWriting``).
    init(
        _ driver: CenterDriver, as uniqueName: UniqueName, announce: @escaping (LostPost) -> Void,
        isWriting: @escaping () -> Bool
    ) {
        looksWriting = isWriting
        self.driver = driver
        self.uniqueName = uniqueName
        self.announce = announce
    }

    // The members are documented in ``Sessions/Center``. Most of them only call the core.
    var newestSerial: UInt64 { driver.center.newestSerial }
    var valuesFromSessions: [DistributedCenter.Kept] { Array(driver.center.valuesFromSessions) }

    var isWriting: Bool { looksWriting() }

    var bytesForSessions: Int {
        get { driver.center.bytesForSessions }
        set { driver.center.bytesForSessions = newValue }
    }

    func valueForSessions(after: UInt64, through: UInt64) -> (value: ExportedNotification, serial: UInt64)? {
        driver.center.valueForSessions(after: after, through: through)
    }

    func value(of key: NotificationKey) -> DistributedCenter.Kept? { driver.center.value(of: key) }

    func remove(_ keys: ArraySlice<NotificationKey>) {
        guard !keys.isEmpty else { return }
        driver.perform { effects in
            for key in keys { _ = driver.center.removeRetained(key, effects: &effects) }
        }
    }

    func lose(_ entries: [LostSignal.Entry]) {
        for entry in entries where entry.count > 0 {
            let reach = driver.center.reach(ofPost: entry.name, object: entry.object, deliverImmediately: false)
            // No observer would have matched the notifications.
            guard let reach else { continue }
            announce(LostPost(entry.count, reaching: reach, from: uniqueName))
        }
    }
}
