// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation
import Synchronization

/// A notification center within the process (part C): observers register for a name, a sender, both or neither, and
/// posting calls those that match, in the order of their registration, before it returns.
///
/// It is used like Foundation's class of the same name, with the same `Notification`. Senders of value types are
/// compared by equality, those of classes by identity; what an Optional holds counts. Names are never empty: that is a
/// mistake of the program.
///
/// Threads: all members from any thread, at once. No lock is held while an observer runs, so it may post, add and
/// remove; a post inside of an observer is delivered before that observer goes on.
///
/// An observer that was removed before its turn in a post is not called any more; one that is added during a post gets
/// the next. On another thread an observer may be running at the moment of its removal.
open class NotificationCenter: NSObject, @unchecked Sendable {
    // Sendable: what changes is locked. Subclasses have to see to theirs.

    /// The process's center. It is not Foundation's.
    open class var `default`: NotificationCenter { shared }

    private static let shared = NotificationCenter()

    let state = ReadLocked(State())
    /// Tells centers apart, also those that are gone.
    private let id = NotificationCenter.ids.add(1, ordering: .relaxed).newValue
    private static let ids = Atomic<UInt64>(0)

    public required override init() {}

    deinit {
        for delivery in state.withLock({ $0.followed }) { delivery.unfollow(self) }
    }

    /// Names the class and how many observers there are.
    open override var description: String {
        "<\(type(of: self)): \(Unmanaged.passUnretained(self).toOpaque()), \(observerCount) observers>"
    }

    open override var debugDescription: String { description }

    // MARK: Observing

    /// Has a block called for each matching notification, until the token is removed.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one. An object is not kept alive, and when it is gone
    ///     nothing matches any more. A value that is neither an object nor `Hashable` matches nothing.
    ///   - queue: where the block runs; the post waits for it. A thread of the queue that waits for this very post runs
    ///     the block itself. Nil = on the posting thread.
    /// - Returns: what `removeObserver(_:)` takes. The block is held until then, the token need not be.
    @discardableResult
    open func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> any NSObjectProtocol {
        add(name, object, nil, .queue(queue), .block(block))
    }

    /// Adds a registration.
    func add(
        _ name: Notification.Name?, _ object: Any?, _ target: AnyObject?, _ place: Registration.Place,
        _ handler: Registration.Handler
    ) -> Token {
        precondition(name?.rawValue.isEmpty != true, "a notification's name is not empty")
        let sender = Sender(object)
        var dead: [Registration] = []
        let (token, late, newContext) = state.withLock { state in
            var known: Target?
            if let target {
                let (found, over) = state.target(for: target)
                (known, dead) = (found, over)
            }
            let sender =
                sender.isComparable ? sender : Sender(comparedBy: state.incomparableKey())
            let registration = Registration(
                name: name?.rawValue, sender: sender, target: known, place: place, handler: handler)
            let order = state.index.orderOfNext
            let (late, newContext) = state.insert(registration)
            return (Token(id, registration.position!, order), late, newContext)
        }
        withExtendedLifetime((dead, late)) {}
        // Outside of the lock: a context that is gone says so at once.
        newContext?.follow(self) { [weak self] in
            guard let self, let newContext else { return }
            let ended = state.withLock { $0.contextEnded(newContext) }
            withExtendedLifetime(ended) {}
        }
        return token
    }

    // MARK: Removing

    /// Removes all registrations of an observer: of a token, or of an object whose methods are called. Of one that has
    /// none, nothing happens.
    open func removeObserver(_ observer: Any) {
        removeObserver(observer, name: nil, object: nil)
    }

    /// Removes an observer's own registrations for a name and a sender. An object may do this in its `deinit`.
    ///
    /// - Parameters:
    ///   - name: those that were registered with this name; nil = all.
    ///   - object: those that were registered with this sender; nil = all.
    open func removeObserver(_ observer: Any, name: Notification.Name?, object: Any?) {
        let sender = Sender(object)
        // A value that equals nothing was no sender of any.
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

    /// How many observers there are, without those whose target is gone.
    public var observerCount: Int {
        let (count, dead) = state.withLock { state in
            let dead = state.sweep()
            return (state.index.count, dead)
        }
        withExtendedLifetime(dead) {}
        return count
    }

    // MARK: Posting

    /// Calls every observer that matches, in the order of registration, and returns when all but those on main contexts
    /// have run.
    open func post(_ notification: Notification) {
        let name = notification.name.rawValue
        precondition(!name.isEmpty, "a notification's name is not empty")
        let sender = Sender(notification.object).key
        let matches = state.read { state in
            var matches = Matches()
            state.index.forEachMatch(name: name, object: sender) { matches.append($0) }
            return matches
        }
        var handover: ContextHandover?
        func hand(_ registration: Registration, to delivery: ContextDelivery, _ modes: ModeSet) -> Bool {
            let made = handover ?? ContextHandover(of: notification)
            handover = made
            return made.append(registration, to: delivery, in: modes)
        }
        matches.forEach { registration in
            guard !registration.isRemoved else { return }
            let isThere =
                switch registration.place {
                case .postingThread: registration.call(notification)
                case .mainActor: NotificationCenter.callOnMainActor(registration, with: notification)
                case .operationQueue(let queue): NotificationCenter.call(registration, on: queue, with: notification)
                case .context(let delivery, let modes): hand(registration, to: delivery, modes)
                }
            if !isThere { _ = state.withLock { $0.remove(registration) } }
        }
    }

    /// The same, for a notification of these parts.
    open func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]? = nil) {
        post(Notification(name: name, object: object, userInfo: userInfo))
    }

    private static func callOnMainActor(_ registration: Registration, with notification: Notification) -> Bool {
        if isMainActor { return registration.call(notification) }
        guard registration.target?.isOver != true else { return false }
        let notification = Carried(notification.withoutEndingSender)
        noteLost(
            MainThreadTarget.shared.deliver(byteCount: PayloadSize.of(notification.value)) {
                registration.call(notification.value)
            })
        return true
    }

    private static func call(
        _ registration: Registration, on queue: OperationQueue, with notification: Notification
    ) -> Bool {
        let notification = Carried(notification)
        return WaitingQueues.run(on: queue) { registration.call(notification.value) } ?? true
    }
}

extension Registration.Place {
    /// Where an observer runs that asked for this queue, or none.
    static func queue(_ queue: OperationQueue?) -> Registration.Place {
        guard let queue else { return .postingThread }
        if queue === OperationQueue.main { MainQueueSource.install() }
        return .operationQueue(queue)
    }
}

/// The observers of one post. Nearly always there is one, or none, which costs no memory.
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
