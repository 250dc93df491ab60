// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// What Foundation's center does not have: main contexts, and tokens of a type of their own.
extension NotificationCenter {
    /// The same as the method that returns `any NSObjectProtocol`, for who wants to name the type of tokens.
    @discardableResult
    @_disfavoredOverload
    public func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        add(name, object, nil, .queue(queue), .block(block))
    }

    /// Has a block called on the thread that runs a main context; the post does not wait for it (T1).
    ///
    /// What arrives while the thread does not run its loop waits, up to `DeliveryQueue.Limits.standard`; beyond that,
    /// and when the context ends, it is lost, counted (``lostDeliveries``) and logged. The registration does not keep
    /// the context alive, and ends with it.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one.
    ///   - modes: the block runs only while the context is in one of them.
    /// - Returns: what `removeObserver(_:)` takes.
    @discardableResult
    public func addObserver(
        forName name: Notification.Name?, object: Any?, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        add(name, object, nil, .context(.to(context), modes: .of(modes)), .block(block))
    }

    /// How many notifications were lost, in the whole process (T2): for observers on main contexts, whose thread did not
    /// run its loop, or whose context ended; and for those of asynchronous messages that did not take them in time.
    public static var lostDeliveries: UInt64 {
        ContextDelivery.lost.load(ordering: .relaxed)
    }
}
