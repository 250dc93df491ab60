import Foundation
import MainLoop
import Synchronization

extension NotificationCenter {
    /// Stands for a block that observes. Removing it twice is harmless, also when there are new observers since.
    public final class Token: NSObject, @unchecked Sendable {
        // Sendable: nothing changes but the weak reference, which the runtime guards.
        private(set) weak var registration: Registration?
        private(set) weak var center: NotificationCenter?

        init(_ registration: Registration, of center: NotificationCenter) {
            self.registration = registration
            self.center = center
        }
    }

    /// An observer that lasts as long as this object, or until ``cancel()`` (C7). Threads: any.
    public final class Observation: Sendable {
        private let token: Token
        private let center: NotificationCenter

        init(_ token: Token, of center: NotificationCenter) {
            self.token = token
            self.center = center
        }

        deinit {
            cancel()
        }

        /// Ends the observation. Doing it again changes nothing.
        public func cancel() {
            center.removeObserver(token)
        }
    }

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
        Observation(addObserver(forName: name, object: object, queue: queue, using: block), of: self)
    }

    /// The same on the thread that runs a main context; posts do not wait for it.
    public func observe(
        _ name: Notification.Name?, object: Any? = nil, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Observation {
        Observation(
            addObserver(forName: name, object: object, context: context, modes: modes, using: block), of: self)
    }
}
