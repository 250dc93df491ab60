// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation
import Synchronization

typealias RegistrationIndex = ObserverIndex<String, SenderKey, Registration>

/// One registration: who wants what, and where. The center's index holds it, and a post while it calls it.
final class Registration: @unchecked Sendable {
    // Sendable: the variables are touched only under the center's lock, or are atomic or weak; the rest never changes.

    enum Handler {
        case block(@Sendable (Notification) -> Void)
        /// Called with the target, which is held weakly.
        case method((AnyObject, Notification) -> Void)
    }

    enum Place {
        case postingThread
        /// The main thread: at once where that posts, else without the post's waiting for it.
        case mainActor
        case operationQueue(OperationQueue)
        case context(ContextDelivery, modes: ModeSet)
    }

    /// Nil means any.
    let name: String?
    /// Nil means any.
    let sender: SenderKey?
    let place: Place
    private let handler: Handler
    /// The object that the registration belongs to, when it has a method called.
    let target: Target?
    /// Keeps the address of the sender from being another's as long as the registration lives (C12), though not the
    /// sender. It is never read: it may be over.
    private unowned let senderAddress: AnyObject?
    /// Tells that the sender is over, where that ends the registration.
    private weak var mortalSender: AnyObject?
    private let hasMortalSender: Bool

    private let removed = Atomic(false)

    // MARK: The center's

    var position: RegistrationIndex.Position?
    /// Where it stands in the lists of its target.
    var targetSlots = Target.Slots()
    /// Where it stands in the center's list of its context.
    var contextSlot = 0

    init(name: String?, sender: Sender, target: Target?, place: Place, handler: Handler) {
        self.name = name
        self.sender = sender.key
        self.target = target
        self.place = place
        self.handler = handler
        senderAddress = sender.object
        // A block is its token's until that is removed.
        hasMortalSender = target != nil && sender.object != nil
        if hasMortalSender { mortalSender = sender.object }
    }

    /// Whether nobody can call it any more, or nobody is there to be called.
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

    // MARK: Delivering

    /// Calls the observer, here.
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
            // Held until the method returns, whoever lets go of it meanwhile (C5).
            guard let object = target?.object else { return false }
            withExtendedLifetime(object) { method(object, notification) }
        }
        return true
    }
}
