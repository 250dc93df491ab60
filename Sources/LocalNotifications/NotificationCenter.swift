import Foundation
import MainLoop
import Synchronization
import ThreadDelivery

/// A notification center within the process (part C): observers register for a name, a sender, both or neither, and
/// posting calls those that match, in the order of their registration, before it returns.
///
/// It is used like Foundation's class of the same name, with the same `Notification`. Senders of value types are
/// compared by equality, those of classes by identity. Names are never empty: that is a mistake of the program.
///
/// Threads: all members from any thread, at once. No lock is held while an observer runs, so it may post, add and
/// remove; a post inside of an observer is delivered before that observer goes on.
///
/// An observer that was removed before its turn in a post is not called any more; one that is added during a post gets
/// the next. On another thread an observer may be running at the moment of its removal.
public final class NotificationCenter: Sendable {
    /// The process's center. It is not Foundation's.
    public static let `default` = NotificationCenter()

    let state = Locked(State())

    public init() {}

    // MARK: Observing

    /// Has a block called for each matching notification, until the token is removed.
    ///
    /// - Parameters:
    ///   - name: nil = every name.
    ///   - object: the sender; nil = any, and posts without one. An object is not kept alive, and when it is gone
    ///     nothing matches any more.
    ///   - queue: where the block runs; the post waits for it. A queue that waits for this very post counts as the one
    ///     that is running. Nil = on the posting thread.
    /// - Returns: what ``removeObserver(_:)`` takes. The block is held until then, the token need not be.
    @discardableResult
    public func addObserver(
        forName name: Notification.Name?, object: Any?, queue: OperationQueue?,
        using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        if queue === OperationQueue.main { MainQueueSource.install() }
        return add(name, object, nil, queue.map { .operationQueue($0) } ?? .postingThread, .block(block))
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
    /// - Returns: what ``removeObserver(_:)`` takes.
    @discardableResult
    public func addObserver(
        forName name: Notification.Name?, object: Any?, context: MainContext,
        modes: Set<RunLoopMode> = [.common], using block: @escaping @Sendable (Notification) -> Void
    ) -> Token {
        add(name, object, nil, .context(.to(context, modes: modes)), .block(block))
    }

    /// Has a method of an object called for each matching notification: `center.addObserver(self, method: Self.saved,
    /// name: .saved, object: nil)`.
    ///
    /// The target is held weakly: when it is gone, so is the registration. It is kept alive while the method runs.
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
        if queue === OperationQueue.main { MainQueueSource.install() }
        add(
            name, object, target, queue.map { .operationQueue($0) } ?? .postingThread,
            .method { method(unsafeDowncast($0, to: Target.self))($1) })
    }

    /// The same for a method that runs on the thread of a main context; the post does not wait for it (T1).
    ///
    /// - Parameter modes: the method is called only while the context is in one of them.
    public func addObserver<Target: AnyObject>(
        _ target: Target, method: @escaping (Target) -> (Notification) -> Void, name: Notification.Name?,
        object: Any? = nil, context: MainContext, modes: Set<RunLoopMode> = [.common]
    ) {
        add(
            name, object, target, .context(.to(context, modes: modes)),
            .method { method(unsafeDowncast($0, to: Target.self))($1) })
    }

    @discardableResult
    private func add(
        _ name: Notification.Name?, _ object: Any?, _ target: AnyObject?, _ place: Registration.Place,
        _ handler: Registration.Handler
    ) -> Token {
        precondition(name?.rawValue.isEmpty != true, "a notification's name is not empty")
        let registration = Registration(
            name: name?.rawValue, object: object, target: target, place: place, handler: handler)
        let dead = state.withLock { $0.insert(registration) }
        withExtendedLifetime(dead) {}
        return Token(registration, of: self)
    }

    // MARK: Removing

    /// Removes all registrations of an observer: of a token, or of an object whose methods are called. Of one that has
    /// none, nothing happens.
    public func removeObserver(_ observer: Any) {
        removeObserver(observer, name: nil, object: nil)
    }

    /// Removes an observer's own registrations for a name and a sender.
    ///
    /// - Parameters:
    ///   - name: those that were registered with this name; nil = all.
    ///   - object: those that were registered with this sender; nil = all.
    public func removeObserver(_ observer: Any, name: Notification.Name?, object: Any?) {
        let (sender, senderObject) = object.map(SenderKey.andObject) ?? (nil, nil)
        // A value that equals nothing was no sender of any.
        if object != nil, sender == nil { return }
        func matches(_ registration: Registration) -> Bool {
            (name == nil || registration.name == name?.rawValue)
                && (sender == nil || (registration.sender == sender && !registration.isOfAnother(than: senderObject)))
        }
        let removed: [Registration]
        if let token = observer as? Token {
            guard token.center === self, let registration = token.registration, matches(registration) else { return }
            removed = state.withLock { $0.remove(registration) ? [registration] : [] }
        } else {
            let target = observer as AnyObject
            let candidates = state.withLock { $0.registrations(of: target, name: name?.rawValue) }
            // The object that had this address before is not this observer.
            let own = candidates.filter { $0.target === target && matches($0) }
            removed = state.withLock { state in own.filter { state.remove($0) } }
        }
        withExtendedLifetime(removed) {}
    }

    /// How many observers there are. Those whose target is gone may still be counted for a while.
    public var observerCount: Int {
        state.withLock { $0.index.count }
    }

    // MARK: Posting

    /// Calls every observer that matches, in the order of registration, and returns when all but those on main contexts
    /// have run.
    public func post(_ notification: Notification) {
        let name = notification.name.rawValue
        precondition(!name.isEmpty, "a notification's name is not empty")
        var matches = Matches()
        find(name, notification.object, into: &matches)
        matches.forEach { registration in
            guard !registration.isRemoved, !registration.deliver(notification) else { return }
            let wasThere = state.withLock { $0.remove(registration) }
            _ = wasThere
        }
    }

    /// The same, for a notification of these parts.
    public func post(name: Notification.Name, object: Any?, userInfo: [AnyHashable: Any]? = nil) {
        post(Notification(name: name, object: object, userInfo: userInfo))
    }

    private func find(_ name: String, _ object: Any?, into matches: inout Matches) {
        guard let object else {
            state.withLock { state in
                state.index.forEachMatch(name: name, object: nil) { matches.append($0) }
            }
            return
        }
        let (sender, senderObject) = SenderKey.andObject(object)
        let dead = state.withLock { state in
            var dead: [Registration] = []
            state.index.forEachMatch(name: name, object: sender) { registration in
                if registration.isOfAnother(than: senderObject) && registration.sender != nil {
                    dead.append(registration)
                } else {
                    matches.append(registration)
                }
            }
            // Their sender is gone and another object has its address: they will never match again.
            for registration in dead { state.remove(registration) }
            return dead
        }
        withExtendedLifetime(dead) {}
    }

    /// How many notifications for observers on main contexts were lost, in the whole process: their thread did not run
    /// its loop, or the context ended (T2).
    public static var lostDeliveries: UInt64 {
        ContextDelivery.lost.load(ordering: .relaxed)
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
