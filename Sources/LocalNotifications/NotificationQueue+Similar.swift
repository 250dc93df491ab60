// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import Foundation

/// The index by which a notification queue finds similar waiting notifications, which a new one replaces (coalescing,
/// Q3).
///
/// There is a hash table for each coalescing mask: by name, by sender, and by both. A table is built at the first
/// search with its mask, so programs that never coalesce pay for none. Taken notifications stay in a table until they
/// outnumber the waiting ones.
///
/// A value type; used under the lock of its queue (``QueueStore``).
struct SimilarNotifications {
    fileprivate enum Key: Hashable {
        case name(String)
        case sender(SenderKey?)
        case both(String, SenderKey?)
    }

    /// The notifications with one key, in order. There is nearly always one, for which no array is allocated.
    fileprivate struct Entry {
        var newest: QueuedNotification
        var others: [QueuedNotification] = []
    }

    /// The table for one mask.
    fileprivate struct Index {
        /// The entry of the last search, kept outside of `entries`. A program often coalesces the same notification
        /// many times in a row; each further search then needs no table access.
        var last: (key: Key, entry: Entry)?
        var entries: [Key: Entry] = [:]
        /// The number of notifications in the index, including taken ones.
        var count = 0
        /// The number of notifications after the last cleaning, at least 64. The index is cleaned at twice this number.
        var limit = 64
    }

    private var byName: Index?
    private var bySender: Index?
    private var byBoth: Index?

    /// The result of a search: the similar waiting notifications, in order. There is nearly always at most one.
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
    /// - Parameters:
    ///   - mask: the properties that make notifications similar; not empty.
    ///   - all: the notifications in the queue, from which a missing table is built.
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

    /// Adds a notification that waits from now on to the existing tables.
    mutating func insert(_ item: QueuedNotification) {
        if byName != nil { byName!.insert(item, .name(item.name)) }
        guard bySender != nil || byBoth != nil else { return }
        let sender = item.sender
        guard sender.isComparable else { return }
        if bySender != nil { bySender!.insert(item, .sender(sender.key)) }
        if byBoth != nil { byBoth!.insert(item, .both(item.name, sender.key)) }
    }

    /// Releases the memory of large tables. Called when no notification waits.
    mutating func releaseLargeTables() {
        byName?.removeAllIfLarge()
        bySender?.removeAllIfLarge()
        byBoth?.removeAllIfLarge()
    }

    /// Searches one table, and builds it first if it does not exist.
    ///
    /// - Parameters:
    ///   - key: the key to search for.
    ///   - index: the table; nil if it does not exist yet.
    ///   - all: the notifications in the queue, from which a missing table is built.
    ///   - keyOf: returns the key of a waiting notification; nil for a sender that can't be compared.
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
    /// Makes the entry of this key the ``last`` one.
    ///
    /// - Returns: whether there is such an entry.
    fileprivate mutating func makeLast(_ key: SimilarNotifications.Key) -> Bool {
        if last?.key == key { return true }
        guard let entry = entries.removeValue(forKey: key) else { return false }
        putLastBack()
        last = (key, entry)
        return true
    }

    /// Returns the last entry to the table.
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
        // The index is cleaned when it has doubled, so the cost of cleaning is constant for each insertion, amortized.
        guard count > 2 * limit else { return }
        putLastBack()
        entries = entries.compactMapValues { $0.waiting }
        count = entries.values.reduce(0) { $0 + 1 + $1.others.count }
        limit = Swift.max(64, count)
    }

    /// Empties the table if it is large. A small one is kept, because allocating it again would cost more.
    fileprivate mutating func removeAllIfLarge() {
        guard count > 64 else { return }
        (last, entries) = (nil, [:])
        count = 0
        limit = 64
    }
}

extension SimilarNotifications.Entry {
    /// Adds a notification, unless it is the newest already.
    fileprivate mutating func append(_ item: QueuedNotification) {
        guard newest !== item else { return }
        if newest.isGone, others.isEmpty {
            newest = item
        } else {
            others.append(newest)
            newest = item
            // Several notifications of one key wait here if they were enqueued without coalescing. When the oldest was
            // taken, the taken ones are removed, before the next cleaning of the index.
            if others.count > 8, others[0].isGone { others.removeAll { $0.isGone } }
        }
    }

    /// The entry without taken notifications; nil when none is left.
    fileprivate var waiting: SimilarNotifications.Entry? {
        let left = (others + [newest]).filter { !$0.isGone }
        guard let newest = left.last else { return nil }
        return SimilarNotifications.Entry(newest: newest, others: Array(left.dropLast()))
    }
}
