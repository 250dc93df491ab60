// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Details of notifications besides their content (P1).
extension DistributedNotificationCenter {
    public typealias Detail = CarillonCore.Detail

    /// The details that the service sends with each notification, such as the poster and the time (P1). The set is
    /// empty by default, because every notification carries the details.
    ///
    /// ```swift
    /// let center = DistributedNotificationCenter.default()
    /// center.details = [.userID, .process]
    /// center.addObserver(forName: .init("org.example.Backup.Finished"), object: nil, queue: nil) { notification in
    ///     print(notification.poster?.name ?? "somebody")
    /// }
    /// ```
    ///
    /// A change applies to notifications that arrive after the service has received it. The library sends the set again
    /// to every new service instance.
    ///
    /// If the service refuses the set, the center reports ``Event/detailsRefused(_:)``, and notifications arrive
    /// without details. An older version of the service refuses it. Details about posters are refused to a program in a
    /// sandbox (P2).
    ///
    /// Threads: any.
    public var details: Set<Detail> {
        get { state.withLock { $0.details } }
        set {
            // Under one lock, so that the service receives the values of several threads in the order in which they
            // take effect here.
            state.withLock { state in
                state.details = newValue
                submit(.details(Details(newValue)))
            }
        }
    }
}
