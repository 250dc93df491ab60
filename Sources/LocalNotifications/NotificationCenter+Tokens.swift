// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

extension NotificationCenter {
    /// Stands for a block that observes. Removing it twice is harmless, also when there are new observers since.
    public final class Token: NSObject, Sendable {
        let centerID: UInt64
        /// Where the block is registered; another's may be there later, which has another order.
        let position: RegistrationIndex.Position
        let order: UInt64

        init(_ centerID: UInt64, _ position: RegistrationIndex.Position, _ order: UInt64) {
            self.centerID = centerID
            self.position = position
            self.order = order
        }

        /// The token that an observer is; nil when it is something else.
        static func held(in observer: Any) -> Token? {
            // By type first: the cast costs more than all the rest of a removal.
            if type(of: observer) == Token.self { return _openExistential(observer, do: asToken) }
            return observer as? Token
        }
    }

    /// An observer that lasts as long as this object, or until `cancel()` (C7). Threads: any.
    public typealias Observation = CarillonThreadDelivery.Observation

    /// Has a block called for each matching notification as long as the result is kept.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one.
    ///   - queue: where the block runs; nil = on the posting thread.
    public func observe(
        _ name: Notification.Name?, object: Any? = nil, queue: OperationQueue? = nil,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> Observation {
        observation(addObserver(forName: name, object: object, queue: queue, using: block))
    }

    /// The same on the thread that runs a main context; posts do not wait for it.
    public func observe(
        _ name: Notification.Name?, object: Any? = nil, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Observation {
        observation(addObserver(forName: name, object: object, context: context, modes: modes, using: block))
    }

    /// The same on the main actor: before the post returns where the main thread posts, and soon where another does. The program
    /// has to run a loop of its main thread then.
    public func observeOnMainActor(
        _ name: Notification.Name?, object: Any? = nil, using block: @escaping @MainActor (Notification) -> Void
    ) -> Observation {
        observation(
            add(
                name, object, nil, .mainActor,
                .block { notification in
                    let notification = Carried(notification)
                    MainActor.assumeIsolated { block(notification.value) }
                }))
    }

    private func observation(_ token: Token) -> Observation {
        Observation { self.removeObserver(token) }
    }
}

/// Of a value that is a token, by its type.
private func asToken<Value>(_ value: Value) -> NotificationCenter.Token {
    unsafeDowncast(unsafeBitCast(value, to: AnyObject.self), to: NotificationCenter.Token.self)
}
