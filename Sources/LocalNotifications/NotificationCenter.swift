// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation
import Synchronization

/// A notification center within the process (part C). Observers register for a name, a sender, both or neither. A post
/// calls the matching observers in the order of their registration, before it returns.
///
/// The class is used like Foundation's class of the same name, with the same `Notification`. Senders of value types are
/// compared by equality, senders of classes by identity; of an Optional, the wrapped value counts. An empty name is a
/// programming error.
///
/// Threads: any, also at the same time. No lock is held while an observer runs, so it may post, add and remove
/// observers. A post inside of an observer is delivered before that observer continues.
///
/// A post does not call an observer that was removed before its call was due. An observer that is added during a post
/// receives the next post. On another thread, an observer may be running at the moment of its removal.
open class NotificationCenter: NSObject, @unchecked Sendable {
    // Sendable: the mutable state is locked. Subclasses must protect their own.

    /// The default center of the process. It is not Foundation's default center.
    open class var `default`: NotificationCenter { shared }

    private static let shared = NotificationCenter()

    /// The registrations; posts read them at the same time, changes are exclusive.
    let state = ReadLocked(State())
    /// The number of the center, by which it recognizes its own tokens. No two centers of a process have the same
    /// number.
    private let id = NotificationCenter.ids.add(1, ordering: .relaxed).newValue
    private static let ids = Atomic<UInt64>(0)

    public required override init() {}

    deinit {
        for delivery in state.withLock({ $0.watchedContexts }) { delivery.unfollow(self) }
    }

    /// The class of the center and the number of its observers.
    open override var description: String {
        "<\(type(of: self)): \(Unmanaged.passUnretained(self).toOpaque()), \(observerCount) observers>"
    }

    open override var debugDescription: String { description }

    // MARK: Observation

    /// Adds a block as an observer, called for each matching notification until the token is removed.
    ///
    /// - Parameters:
    ///   - name: the name of the notifications; nil matches every name.
    ///   - object: the sender; nil matches any sender, and posts without one. An object is not kept alive, and when it
    ///     is gone nothing matches any more. A value that is neither an object nor `Hashable` matches nothing.
    ///   - queue: the queue that runs the block; the post waits for it. A thread of the queue that waits for this post
    ///     runs the block itself. Nil runs the block on the posting thread.
    /// - Returns: the token for `removeObserver(_:)`. The center holds the block until the token is removed; the
    ///   program need not hold the token.
    @discardableResult
    open func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        add(name, object, nil, .queue(queue), .block(block))
    }

    /// Adds a registration to the center.
    ///
    /// - Parameters:
    ///   - target: the object of an observing method; nil for a block.
    ///   - destination: the thread, queue or context that runs the observer.
    /// - Returns: the token of the registration.
    func add(
        _ name: Notification.Name?, _ object: Any?, _ target: AnyObject?, _ destination: Registration.Destination,
        _ handler: Registration.Handler
    ) -> Token {
        precondition(name?.rawValue.isEmpty != true, "a notification's name must not be empty")
        let sender = Sender(object)
        var dead: [Registration] = []
        let (token, swept, newContext) = state.withLock { state in
            var known: Target?
            if let target {
                let (found, over) = state.target(for: target)
                (known, dead) = (found, over)
            }
            let sender =
                sender.isComparable ? sender : Sender(comparedBy: state.incomparableKey())
            let registration = Registration(
                name: name?.rawValue, sender: sender, target: known, destination: destination, handler: handler)
            let order = state.index.orderOfNext
            let (swept, newContext) = state.insert(registration)
            return (Token(id, registration.position!, order), swept, newContext)
        }
        // Removed registrations are released here, outside of the lock: their objects may have a `deinit` that uses the
        // center.
        withExtendedLifetime((dead, swept)) {}
        // The registrations of a context are removed when it ends. The call is outside of the lock, because a context
        // that has ended calls the closure at once.
        newContext?.follow(self) { [weak self] in
            guard let self, let newContext else { return }
            let ended = state.withLock { $0.contextEnded(newContext) }
            withExtendedLifetime(ended) {}
        }
        return token
    }

    // MARK: Removal

    /// Removes all registrations of an observer: of a token, or of an object with observing methods. Has no effect on
    /// an observer without registrations.
    open func removeObserver(_ observer: Any) {
        removeObserver(observer, name: nil, object: nil)
    }

    /// Removes the registrations of an observer for a name and a sender. An object may call this in its `deinit`.
    ///
    /// - Parameters:
    ///   - observer: the token, or the object with observing methods.
    ///   - name: the name in the registrations to remove; nil removes those for all names.
    ///   - object: the sender in the registrations to remove; nil removes those for all senders.
    open func removeObserver(_ observer: Any, name: Notification.Name?, object: Any?) {
        let sender = Sender(object)
        // A sender that can't be compared has no registration to remove.
        guard sender.isComparable else { return }
        if let token = Token.held(in: observer) {
            guard token.centerID == id else { return }
            let removed = state.withLock { $0.remove(token, name: name?.rawValue, sender: sender.key) }
            withExtendedLifetime(removed) {}
        } else {
            let removed = state.withLock { state in
                let own = state.registrations(
                    of: observer as AnyObject, name: name?.rawValue, sender: sender.key)
                return own.filter { state.remove($0) }
            }
            withExtendedLifetime(removed) {}
        }
    }

    /// The number of observers, without observers whose target object is gone.
    public var observerCount: Int {
        let (count, dead) = state.withLock { state in
            let dead = state.sweep()
            return (state.index.count, dead)
        }
        withExtendedLifetime(dead) {}
        return count
    }

    // MARK: Posts

    /// Posts a notification: calls every matching observer in the order of registration. Returns when all of them have
    /// run, except for observers on main contexts, and for observers on the main actor when another thread posts.
    open func post(_ notification: Notification) {
        let name = notification.name.rawValue
        precondition(!name.isEmpty, "a notification's name must not be empty")
        let sender = Sender(notification.object).key
        // Observers are collected under the lock and called without it.
        let matches = state.read { state in
            var matches = Matches()
            state.index.forEachMatch(name: name, object: sender) { matches.append($0) }
            return matches
        }
        var handover: ContextHandover?
        /// Passes the notification to an observer on a main context. False when the observer can't be called any more.
        func hand(_ registration: Registration, to delivery: ContextDelivery, _ modes: ModeSet) -> Bool {
            let made = handover ?? ContextHandover(of: notification)
            handover = made
            return made.append(registration, to: delivery, in: modes)
        }
        matches.forEach { registration in
            guard !registration.isRemoved else { return }
            let isAlive =
                switch registration.destination {
                case .postingThread: registration.call(notification)
                case .mainActor: NotificationCenter.callOnMainActor(registration, with: notification)
                case .operationQueue(let queue): NotificationCenter.call(registration, on: queue, with: notification)
                case .context(let delivery, let modes): hand(registration, to: delivery, modes)
                }
            if !isAlive { _ = state.withLock { $0.remove(registration) } }
        }
    }

    /// Posts a notification with this name, sender and userInfo.
    open func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]? = nil) {
        post(Notification(name: name, object: object, userInfo: userInfo))
    }

    /// Calls an observer on the main actor: at once on its thread, or later from another thread.
    ///
    /// - Returns: false when the observer's target is gone, so that the registration can be removed.
    private static func callOnMainActor(_ registration: Registration, with notification: Notification) -> Bool {
        if isMainActor { return registration.call(notification) }
        guard registration.target?.isOver != true else { return false }
        let notification = CrossThreadBox(notification.withoutEndingSender)
        noteLost(
            MainThreadTarget.shared.deliver(byteCount: PayloadSize.of(notification.value)) {
                registration.call(notification.value)
            })
        return true
    }

    /// Calls an observer on an operation queue and waits for it.
    ///
    /// - Returns: false when the observer's target is gone. True also when the queue cancelled the call.
    private static func call(
        _ registration: Registration, on queue: OperationQueue, with notification: Notification
    ) -> Bool {
        let notification = CrossThreadBox(notification)
        return SynchronousQueueCalls.run(on: queue) { registration.call(notification.value) } ?? true
    }
}

extension Registration.Destination {
    /// The place of an observer with this queue, or without a queue.
    static func queue(_ queue: OperationQueue?) -> Registration.Destination {
        guard let queue else { return .postingThread }
        if queue === OperationQueue.main { MainQueueSource.install() }
        return .operationQueue(queue)
    }
}

/// The observers of one post. There is nearly always at most one, which allocates no memory.
private struct Matches {
    private var first: Registration?
    private var rest: [Registration] = []

    mutating func append(_ registration: Registration) {
        if first == nil { first = registration } else { rest.append(registration) }
    }

    func forEach(_ body: (Registration) -> Void) {
        guard let first else { return }
        body(first)
        for registration in rest { body(registration) }
    }
}
