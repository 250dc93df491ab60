// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonWire

/// The adapter through which other sessions use this session's center.
final class SessionsCenter: Sessions.Center {
    private unowned let driver: CenterDriver
    private let uniqueName: UniqueName
    private let announce: (LostPost) -> Void
    private let looksWriting: () -> Bool

    /// - Parameters:
    ///   - uniqueName: the service's own name on the session bus.
    ///   - announce: reports a loss to observers, in between other work.
    ///   - isWriting: returns whether much is queued to be written.
    init(
        _ driver: CenterDriver, as uniqueName: UniqueName, announce: @escaping (LostPost) -> Void,
        isWriting: @escaping () -> Bool
    ) {
        looksWriting = isWriting
        self.driver = driver
        self.uniqueName = uniqueName
        self.announce = announce
    }

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

    func value(of kind: NotificationKey) -> DistributedCenter.Kept? { driver.center.value(of: kind) }

    func remove(_ kinds: ArraySlice<NotificationKey>) {
        guard !kinds.isEmpty else { return }
        driver.perform { effects in
            for kind in kinds { _ = driver.center.removeRetained(kind, effects: &effects) }
        }
    }

    func lose(_ entries: [LostSignal.Entry]) {
        for entry in entries where entry.count > 0 {
            let reach = driver.center.reach(ofPost: entry.name, object: entry.object, deliverImmediately: false)
            guard let reach else { continue }
            announce(LostPost(entry.count, reaching: reach, from: uniqueName))
        }
    }
}
