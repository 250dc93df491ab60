// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import Foundation

/// An index of the waiting notifications of a queue, to find similar ones (Q3).
///
/// There is an index for each mask, from its first search on; programs that never coalesce pay for none. Notifications
/// that are gone stay in an index until they outnumber the waiting ones.
///
/// A value type; used under the lock of its queue.
struct SimilarNotifications {
    fileprivate enum Key: Hashable {
        case name(String)
        case sender(SenderKey?)
        case both(String, SenderKey?)
    }

    /// The notifications of one key: nearly always one.
    fileprivate struct Entry {
        var newest: QueuedNotification
        var others: [QueuedNotification] = []
    }

    fileprivate struct Index {
        /// The entry of the key in the last search. It is not in `entries`, because a busy notification is coalesced
        /// again and again.
        var last: (key: Key, entry: Entry)?
        var entries: [Key: Entry] = [:]
        /// The approximate number of notifications in the index, including removed ones.
        var count = 0
        /// A lower bound of the number that waited when the index was last cleaned.
        var limit = 64
    }

    private var byName: Index?
    private var bySender: Index?
    private var byBoth: Index?

    /// The waiting notifications that are similar: nearly always one.
    struct Found {
        var others: [QueuedNotification] = []
        var newest: QueuedNotification?

        /// Calls `body` for each notification, in order.
        func forEach(_ body: (QueuedNotification) -> Void) {
            for other in others { body(other) }
            if let newest { body(newest) }
        }
    }

    /// Finds the waiting notifications that are similar.
    ///
    /// - Parameter all: the notifications in the queue.
    mutating func find(
        _ notification: Notification, _ mask: NotificationQueue.NotificationCoalescing,
        among all: Deque<QueuedNotification>
    ) -> Found {
        let name = notification.name.rawValue
        guard mask.contains(.onSender) else {
            return Self.find(.name(name), in: &byName, among: all) { .name($0.name) }
        }
        let sender = Sender(notification.object)
        guard sender.isComparable else { return Found() }
        guard mask.contains(.onName) else {
            return Self.find(.sender(sender.key), in: &bySender, among: all) { item in
                let sender = item.sender
                return sender.isComparable ? .sender(sender.key) : nil
            }
        }
        return Self.find(.both(name, sender.key), in: &byBoth, among: all) { item in
            let sender = item.sender
            return sender.isComparable ? .both(item.name, sender.key) : nil
        }
    }

    /// Adds a notification that waits from now on.
    mutating func insert(_ item: QueuedNotification) {
        if byName != nil { byName!.insert(item, .name(item.name)) }
        guard bySender != nil || byBoth != nil else { return }
        let sender = item.sender
        guard sender.isComparable else { return }
        if bySender != nil { bySender!.insert(item, .sender(sender.key)) }
        if byBoth != nil { byBoth!.insert(item, .both(item.name, sender.key)) }
    }

    /// Drops large indexes when no notification waits.
    mutating func forgetTheGone() {
        byName?.forgetMany()
        bySender?.forgetMany()
        byBoth?.forgetMany()
    }

    private static func find(
        _ key: Key, in index: inout Index?, among all: Deque<QueuedNotification>,
        keyOf: (QueuedNotification) -> Key?
    ) -> Found {
        if index == nil {
            index = Index()
            for item in all where !item.isGone {
                if let key = keyOf(item) { index!.insert(item, key) }
            }
        }
        guard index!.makeLast(key), let entry = index!.last?.entry else { return Found() }
        var found = Found(newest: entry.newest.isGone ? nil : entry.newest)
        if !entry.others.isEmpty { found.others = entry.others.filter { !$0.isGone } }
        return found
    }
}

extension SimilarNotifications.Index {
    /// - Returns: whether an entry with this key exists; it is then ``last``.
    fileprivate mutating func makeLast(_ key: SimilarNotifications.Key) -> Bool {
        if last?.key == key { return true }
        guard let entry = entries.removeValue(forKey: key) else { return false }
        putLastBack()
        last = (key, entry)
        return true
    }

    private mutating func putLastBack() {
        if let last { entries[last.key] = last.entry }
        last = nil
    }

    fileprivate mutating func insert(_ item: QueuedNotification, _ key: SimilarNotifications.Key) {
        if makeLast(key) {
            last!.entry.append(item)
        } else {
            putLastBack()
            last = (key, SimilarNotifications.Entry(newest: item))
        }
        count += 1
        // The index is cleaned when as many notifications have been added as there are to examine.
        guard count > 2 * limit else { return }
        putLastBack()
        entries = entries.compactMapValues { $0.waiting }
        count = entries.values.reduce(0) { $0 + 1 + $1.others.count }
        limit = Swift.max(64, count)
    }

    fileprivate mutating func forgetMany() {
        guard count > 64 else { return }
        (last, entries) = (nil, [:])
        count = 0
        limit = 64
    }
}

extension SimilarNotifications.Entry {
    fileprivate mutating func append(_ item: QueuedNotification) {
        guard newest !== item else { return }
        if newest.isGone, others.isEmpty {
            newest = item
        } else {
            others.append(newest)
            newest = item
            if others.count > 8, others[0].isGone { others.removeAll { $0.isGone } }
        }
    }

    /// The entry without the notifications that are gone; nil when none is left.
    fileprivate var waiting: SimilarNotifications.Entry? {
        let left = (others + [newest]).filter { !$0.isGone }
        guard let newest = left.last else { return nil }
        return SimilarNotifications.Entry(newest: newest, others: Array(left.dropLast()))
    }
}
