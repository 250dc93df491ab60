// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation
import Synchronization

/// The center's index of registrations by name and sender.
typealias RegistrationIndex = ObserverIndex<String, SenderKey, Registration>

/// A registration of an observer: the name and sender that it matches, its handler, and the thread or queue that runs
/// the handler. The center's index retains it, and so does a post until it has called the observer.
final class Registration: @unchecked Sendable {
    // Sendable: the variables are accessed only under the center's lock, or are atomic or weak; the rest never changes.

    /// The action of the observer.
    enum Handler {
        case block(@Sendable (Notification) -> Void)
        /// Called with the target, which is held weakly.
        case method((AnyObject, Notification) -> Void)
    }

    /// The thread, queue or context that runs the handler.
    enum Destination {
        /// The posting thread, within the post.
        case postingThread
        /// The main thread: a post on that thread calls the observer at once, a post on another thread does not wait
        /// for it.
        case mainActor
        /// An operation queue; the post waits for the handler.
        case operationQueue(OperationQueue)
        /// The thread of a main context, in these modes; the post does not wait.
        case context(ContextDelivery, modes: ModeSet)
    }

    /// Nil matches any name.
    let name: String?
    /// Nil matches any sender.
    let sender: SenderKey?
    let destination: Destination
    private let handler: Handler
    /// The object of an observing method, with which the registration ends; nil for a block.
    let target: Target?
    /// An unowned reference to the sender. The runtime keeps the memory of the ended object for it, so that no later
    /// object has the address in ``sender`` while the registration exists (C12). It is never read, because the sender
    /// may be gone.
    private unowned let senderAddress: AnyObject?
    /// A weak reference to the sender, for a registration that ends with its sender; see ``isDead``.
    private weak var weakSender: AnyObject?
    private let endsWithSender: Bool

    /// Whether the center has removed the registration, so that it must not be called any more.
    private let removed = Atomic(false)

    // MARK: State of the center

    /// The position in the center's index; nil after the removal.
    var position: RegistrationIndex.Position?
    /// The positions of the registration in the lists of its target.
    var targetSlots = Target.Slots()
    /// The position of the registration in the center's list of its context.
    var contextSlot = 0

    init(name: String?, sender: Sender, target: Target?, destination: Destination, handler: Handler) {
        self.name = name
        self.sender = sender.key
        self.target = target
        self.destination = destination
        self.handler = handler
        senderAddress = sender.object
        // Only the registration of a method ends with its sender. That of a block exists until its token is removed.
        endsWithSender = target != nil && sender.object != nil
        if endsWithSender { weakSender = sender.object }
    }

    /// Whether the registration can't match or call anything any more, because its target or its sender is gone.
    var isDead: Bool {
        guard let target else { return false }
        return target.isOver || (endsWithSender && weakSender == nil)
    }

    var isRemoved: Bool {
        removed.load(ordering: .acquiring)
    }

    func markRemoved() {
        removed.store(true, ordering: .releasing)
    }

    // MARK: Delivery

    /// Calls the observer on the current thread.
    ///
    /// - Returns: false when the target is gone.
    @discardableResult
    func call(_ notification: Notification) -> Bool {
        // Observers of one post may remove each other (C8).
        guard !isRemoved else { return true }
        switch handler {
        case .block(let block):
            block(notification)
        case .method(let method):
            // The target is held until the method returns, even if other code releases it meanwhile (C5).
            guard let object = target?.object else { return false }
            withExtendedLifetime(object) { method(object, notification) }
        }
        return true
    }
}
