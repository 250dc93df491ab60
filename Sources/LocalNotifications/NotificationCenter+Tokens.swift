// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Tokens of observing blocks, and observations that end with an object.
extension NotificationCenter {
    /// The token of an observing block. Its second removal has no effect, even if other observers were added in
    /// between.
    public final class Token: NSObject, Sendable {
        /// The number of the center that created the token.
        let centerID: UInt64
        /// The position of the registration in the center's index. The index may reuse a position after a removal; the
        /// order then differs.
        let position: RegistrationIndex.Position
        /// The number of the registration in the order of all registrations of the center.
        let order: UInt64

        init(_ centerID: UInt64, _ position: RegistrationIndex.Position, _ order: UInt64) {
            self.centerID = centerID
            self.position = position
            self.order = order
        }

        /// Returns the observer as a token; nil when it is no token.
        static func held(in observer: Any) -> Token? {
            // The type is compared first, because the cast costs more than the remaining work of a removal.
            if type(of: observer) == Token.self { return _openExistential(observer, do: asToken) }
            return observer as? Token
        }
    }

    /// The registration of an observer. It ends when this object is released, or with `cancel()` (C7). Threads: any.
    public typealias Observation = CarillonThreadDelivery.Observation

    /// Calls a block for each matching notification as long as the program holds the result.
    ///
    /// - Parameters:
    ///   - name: the name of the notifications; nil matches every name.
    ///   - object: the sender; nil matches any sender, and posts without one.
    ///   - queue: the queue that runs the block; nil runs it on the posting thread.
    public func observe(
        _ name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> Observation {
        observation(addObserver(forName: name, object: object, queue: queue, using: block))
    }

    /// Calls a block on the thread that runs a main context, as long as the program holds the result. The post does not
    /// wait for the block.
    public func observe(
        _ name: Notification.Name?, object: Any? = nil, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Observation {
        observation(addObserver(forName: name, object: object, context: context, modes: modes, using: block))
    }

    /// Calls a block on the main actor, as long as the program holds the result. A post on the main thread waits for
    /// the block. A post on another thread does not; then the main thread must run a loop.
    public func observeOnMainActor(
        _ name: Notification.Name?, object: Any? = nil, using block: @escaping @MainActor (Notification) -> Void
    ) -> Observation {
        observation(
            add(
                name, object, nil, .mainActor,
                .block { notification in
                    let notification = CrossThreadBox(notification)
                    MainActor.assumeIsolated { block(notification.value) }
                }))
    }

    /// Returns an observation that removes a token's observer at its end.
    private func observation(_ token: Token) -> Observation {
        Observation { self.removeObserver(token) }
    }
}

/// Converts a value that is known to be a token, without a dynamic cast, which would be slow.
private func asToken<Value>(_ value: Value) -> NotificationCenter.Token {
    unsafeDowncast(unsafeBitCast(value, to: AnyObject.self), to: NotificationCenter.Token.self)
}
