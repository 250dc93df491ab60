// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// What the program is told about notifications besides their content (P1).
extension DistributedNotificationCenter {
    public typealias Detail = CarillonCore.Detail

    /// What this program wants to be told about each notification: who posted it, and when. Nothing by default, as it has
    /// to be sent with each.
    ///
    /// ```swift
    /// let center = DistributedNotificationCenter.default()
    /// center.details = [.userID, .process]
    /// center.addObserver(forName: .init("org.example.Backup.Finished"), object: nil, queue: nil) { notification in
    ///     print(notification.poster?.name ?? "somebody")
    /// }
    /// ```
    ///
    /// It holds for what arrives after the service has heard of it, and is told again to every service that comes. Where
    /// the service does not tell, as it is an older one or the program is in a sandbox, there is an event,
    /// ``Event/detailsRefused(_:)``, and notifications come without.
    ///
    /// Threads: any.
    public var details: Set<Detail> {
        get { state.withLock { $0.details } }
        set {
            // Together, so that what threads say at once reaches the service in the order in which it holds here.
            state.withLock { state in
                state.details = newValue
                submit(.details(Details(newValue)))
            }
        }
    }
}
