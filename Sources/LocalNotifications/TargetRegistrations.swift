// SPDX-License-Identifier: Apache-2.0
/// The registrations of one object with observing methods, for `removeObserver(_:name:object:)`. A lookup by name,
/// sender or both takes time in proportion to the registrations found (C6, C11). Used under the center's lock.
final class TargetRegistrations {
    let target: Target

    /// The key of a list of registrations.
    private enum Key: Hashable {
        case name(String)
        case sender(SenderKey)
        case both(String, SenderKey)
    }

    private var all: [Registration] = []
    /// The lists by name and sender; nil while there are few registrations, which are then searched one by one.
    private var lists: [Key: [Registration]]?
    /// The number of registrations up to which no lists are kept.
    private static let few = 16

    init(of target: Target) {
        self.target = target
    }

    var isEmpty: Bool { all.isEmpty }

    /// Returns the registrations for a name and a sender; nil means all names, or all senders.
    func registrations(name: String?, sender: SenderKey?) -> [Registration] {
        guard let lists else {
            return all.filter { (name == nil || $0.name == name) && (sender == nil || $0.sender == sender) }
        }
        return switch (name, sender) {
        case (let name?, let sender?): lists[.both(name, sender)] ?? []
        case (let name?, nil): lists[.name(name)] ?? []
        case (nil, let sender?): lists[.sender(sender)] ?? []
        case (nil, nil): all
        }
    }

    func insert(_ registration: Registration) {
        registration.targetSlots.all = all.append(returningSlotOf: registration)
        if lists != nil {
            list(registration)
        } else if all.count > Self.few {
            lists = [:]
            for registration in all { list(registration) }
        }
    }

    /// Adds a registration to the lists by name and sender.
    private func list(_ registration: Registration) {
        if let name = registration.name {
            registration.targetSlots.named = lists![.name(name), default: []].append(returningSlotOf: registration)
        }
        if let sender = registration.sender {
            registration.targetSlots.sent = lists![.sender(sender), default: []].append(returningSlotOf: registration)
        }
        if let name = registration.name, let sender = registration.sender {
            registration.targetSlots.both =
                lists![.both(name, sender), default: []].append(returningSlotOf: registration)
        }
    }

    /// Removes a registration, which must exist.
    func remove(_ registration: Registration) {
        all.fillGap(at: registration.targetSlots.all) { $0.targetSlots.all = $1 }
        guard lists != nil else { return }
        let slots = registration.targetSlots
        if let name = registration.name { unlist(.name(name), slots.named) { $0.targetSlots.named = $1 } }
        if let sender = registration.sender { unlist(.sender(sender), slots.sent) { $0.targetSlots.sent = $1 } }
        if let name = registration.name, let sender = registration.sender {
            unlist(.both(name, sender), slots.both) { $0.targetSlots.both = $1 }
        }
    }

    /// Removes the registration at a position of a list.
    ///
    /// - Parameters:
    ///   - key: the key of the list.
    ///   - slot: the position in the list.
    ///   - moved: receives the registration that moves into the gap, and its new position.
    private func unlist(_ key: Key, _ slot: Int, moved: (Registration, Int) -> Void) {
        lists![key]!.fillGap(at: slot, moved: moved)
        if lists![key]!.isEmpty { lists![key] = nil }
    }
}

/// An unordered list, from which an element is removed by its position in constant time.
extension [Registration] {
    /// Appends a registration and returns its position.
    mutating func append(returningSlotOf registration: Registration) -> Int {
        append(registration)
        return count - 1
    }

    /// Removes the element at a position, and moves the last element into the gap. `moved` receives the moved element
    /// and its new position.
    mutating func fillGap(at slot: Int, moved: (Registration, Int) -> Void) {
        let last = removeLast()
        guard slot < count else { return }
        self[slot] = last
        moved(last, slot)
    }
}
