// SPDX-License-Identifier: Apache-2.0
import Foundation
import MainLoop
import ThreadDelivery

/// What Foundation's center does not have: methods of objects without the runtime of Objective-C, main contexts, and
/// tokens of a type of their own.
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

    /// Has a method of an object called for each matching notification: `center.addObserver(self, method: Self.saved,
    /// name: .saved, object: nil)`.
    ///
    /// The target is held weakly: when it is gone, so is the registration. It is kept alive while the method runs. What
    /// is left of the registration hears nothing, and goes soon; a target that wants it gone at once removes itself in
    /// its `deinit`, or keeps an ``Observation`` of a block.
    /// Every thread that posts calls the method, so it has to be one that can be called there; ask for a queue or a
    /// context where it is not.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one.
    ///   - queue: where the method runs; nil = on the posting thread.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> (Notification) -> Void, name: Notification.Name?,
        object: Any? = nil, queue: OperationQueue? = nil
    ) {
        _ = add(
            name, object, target, .queue(queue), .method { method(unsafeDowncast($0, to: Target.self))($1) })
    }

    /// The same for a method that runs on the thread of a main context; the post does not wait for it (T1).
    ///
    /// - Parameter modes: the method is called only while the context is in one of them.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> (Notification) -> Void, name: Notification.Name?,
        object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        _ = add(
            name, object, target, .context(.to(context), modes: .of(modes)),
            .method { method(unsafeDowncast($0, to: Target.self))($1) })
    }

    /// How many notifications were lost, in the whole process (T2): for observers on main contexts, whose thread did not
    /// run its loop, or whose context ended; and for those of asynchronous messages that did not take them in time.
    public static var lostDeliveries: UInt64 {
        ContextDelivery.lost.load(ordering: .relaxed)
    }
}
