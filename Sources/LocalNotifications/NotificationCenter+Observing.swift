// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Observation beyond Foundation's interface: on the thread of a main context, and with a typed token.
extension NotificationCenter {
    /// Adds a block as an observer, like the method of Foundation's interface. The token has the type ``Token``, which
    /// is `Sendable`, instead of `any NSObjectProtocol`.
    @discardableResult
    @_disfavoredOverload
    public func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        add(name, object, nil, .queue(queue), .block(block))
    }

    /// Adds a block as an observer, called on the thread that runs a main context. The post does not wait for it (T1).
    ///
    /// While the thread does not run its loop, notifications wait, up to `DeliveryQueue.Limits.standard`. Notifications
    /// beyond that limit, or waiting when the context ends, are lost, counted (``lostDeliveries``) and logged. The
    /// registration does not keep the context alive, and ends with it.
    ///
    /// - Parameters:
    ///   - name: the name of the notifications; nil matches every name.
    ///   - object: the sender; nil matches any sender, and posts without one.
    ///   - modes: the modes of the context in which the block may run.
    /// - Returns: the token for `removeObserver(_:)`.
    @discardableResult
    public func addObserver(
        forName name: Notification.Name?, object: Any?, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        add(name, object, nil, .context(.to(context), modes: .of(modes)), .block(block))
    }

    /// The number of notifications that were lost in the whole process (T2). Observers on main contexts lose them when
    /// their thread does not run its loop, or when the context ends. Observers of asynchronous messages lose messages
    /// that they do not take in time.
    public static var lostDeliveries: UInt64 {
        ContextDelivery.lost.load(ordering: .relaxed)
    }
}
