import Collections
import Foundation
import Synchronization
import ThreadDelivery

typealias RegistrationIndex = ObserverIndex<String, SenderKey, Registration>

/// One registration: who wants what, and where.
final class Registration: @unchecked Sendable {
    // Sendable: the variables are touched only under the center's lock, or are atomic or weak; the rest never changes.

    enum Handler {
        case block(@Sendable (Notification) -> Void)
        /// Called with the target, which is held weakly beside it.
        case method((AnyObject, Notification) -> Void)
    }

    enum Place {
        case postingThread
        case operationQueue(OperationQueue)
        case context(ContextDelivery)
    }

    /// Nil means any.
    let name: String?
    /// Nil means any.
    let sender: SenderKey?
    private let handler: Handler
    let place: Place

    /// The object that the registration belongs to, when it has a method called.
    private(set) weak var target: AnyObject?
    let targetID: ObjectIdentifier?
    /// The sender, when it is one that can end: its address may then be another's (C12).
    private weak var senderObject: AnyObject?
    private let hasMortalSender: Bool

    private let removed = Atomic(false)

    // MARK: The center's

    var position: RegistrationIndex.Position?
    /// Where it stands in the center's list of its target, and in that of its target and name.
    var targetSlot = 0
    var targetNameSlot = 0

    init(name: String?, object: Any?, target: AnyObject?, place: Place, handler: Handler) {
        self.name = name
        if let object {
            let (key, mortal) = SenderKey.andObject(object)
            guard let key else {
                preconditionFailure("\(type(of: object)) is neither a class nor Hashable: no sender equals it")
            }
            sender = key
            senderObject = mortal
            hasMortalSender = mortal != nil
        } else {
            sender = nil
            hasMortalSender = false
        }
        self.target = target
        targetID = target.map(ObjectIdentifier.init)
        self.place = place
        self.handler = handler
    }

    /// Whether `object`, which has the key of this registration's sender, is not that sender but has its address.
    func isOfAnother(than object: AnyObject?) -> Bool {
        hasMortalSender && senderObject !== object
    }

    /// Whether nothing can reach it any more.
    var isDead: Bool {
        if targetID != nil {
            return target == nil || (hasMortalSender && senderObject == nil)
        }
        // A block is its token's until that is removed; but where should it run?
        if case .context(let delivery) = place { return delivery.isClosed }
        return false
    }

    var isRemoved: Bool {
        removed.load(ordering: .acquiring)
    }

    func markRemoved() {
        removed.store(true, ordering: .releasing)
    }

    // MARK: Delivering

    /// Has the observer called where it wants to be. No lock may be held.
    ///
    /// - Returns: false when there is nobody any more who could be called.
    func deliver(_ notification: Notification) -> Bool {
        switch place {
        case .postingThread:
            return call(notification)
        case .operationQueue(let queue):
            let notification = Carried(notification)
            return WaitingQueues.run(on: queue) { self.call(notification.value) } ?? true
        case .context(let delivery):
            if targetID != nil, target == nil { return false }
            let entries = notification.userInfo?.count ?? 0
            let notification = Carried(notification)
            return delivery.append(byteCount: DeliveryQueue.assumedByteCount + 64 * entries) {
                self.call(notification.value)
            }
        }
    }

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
            guard let target else { return false }
            withExtendedLifetime(target) { method(target, notification) }
        }
        return true
    }
}
