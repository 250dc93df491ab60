// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation
import Synchronization

typealias RegistrationIndex = ObserverIndex<String, SenderKey, Registration>

/// A registration: an observer, its name and sender, and its place. The center's index holds it, and so does a post
/// while it calls it.
final class Registration: @unchecked Sendable {
    // Sendable: the variables are accessed only under the center's lock, or are atomic or weak; the rest never changes.

    enum Handler {
        case block(@Sendable (Notification) -> Void)
        /// Called with the target, which is held weakly.
        case method((AnyObject, Notification) -> Void)
    }

    enum Place {
        case postingThread
        /// The main thread: a post on that thread calls the observer at once, a post on another thread does not wait
        /// for it.
        case mainActor
        case operationQueue(OperationQueue)
        case context(ContextDelivery, modes: ModeSet)
    }

    /// Nil matches any name.
    let name: String?
    /// Nil matches any sender.
    let sender: SenderKey?
    let place: Place
    private let handler: Handler
    /// The object that the registration belongs to, if it calls a method.
    let target: Target?
    /// Reserves the address of the sender as long as the registration lives (C12), without keeping the sender alive. It
    /// is never read, because the sender may be gone.
    private unowned let senderAddress: AnyObject?
    /// Shows the end of the sender, where that ends the registration.
    private weak var mortalSender: AnyObject?
    private let hasMortalSender: Bool

    private let removed = Atomic(false)

    // MARK: State of the center

    var position: RegistrationIndex.Position?
    /// The positions of the registration in the lists of its target.
    var targetSlots = Target.Slots()
    /// The position of the registration in the center's list of its context.
    var contextSlot = 0

    init(name: String?, sender: Sender, target: Target?, place: Place, handler: Handler) {
        self.name = name
        self.sender = sender.key
        self.target = target
        self.place = place
        self.handler = handler
        senderAddress = sender.object
        // A block belongs to its token until the token is removed.
        hasMortalSender = target != nil && sender.object != nil
        if hasMortalSender { mortalSender = sender.object }
    }

    /// Whether the registration can't match or call anything any more, because its target or its sender is gone.
    var isDead: Bool {
        guard let target else { return false }
        return target.isOver || (hasMortalSender && mortalSender == nil)
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
