import Foundation
import MainLoop
import ThreadDelivery

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

    /// An observer that lasts as long as this object, or until `cancel()` (C7). Threads: any.
    public typealias Observation = ThreadDelivery.Observation

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

    private func observation(_ token: Token) -> Observation {
        Observation { self.removeObserver(token) }
    }
}
