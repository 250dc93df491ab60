import Collections
import Foundation
import MainLoop
import Synchronization

/// A notification in a queue.
final class QueuedNotification: @unchecked Sendable {
    // Sendable: the variables are touched only under the lock of the queue that it is in, or by the one thread that
    // took it out.
    let notification: Notification
    let name: String
    /// Nil when there is no sender, or one that equals nothing.
    let sender: SenderKey?
    /// Whether it can be similar to another by its sender.
    let hasComparableSender: Bool
    fileprivate(set) var style: NotificationQueue.PostingStyle
    fileprivate(set) var modes: Set<RunLoopMode>
    /// What orders all notifications of the process that wait.
    fileprivate(set) var number: UInt64 = 0

    init(_ notification: Notification, _ style: NotificationQueue.PostingStyle, _ modes: Set<RunLoopMode>) {
        self.notification = notification
        name = notification.name.rawValue
        sender = notification.object.flatMap(SenderKey.init)
        hasComparableSender = sender != nil || notification.object == nil
        self.style = style
        self.modes = modes
    }

    static let numbers = Atomic<UInt64>(1)
}

/// What waits in one queue; used under its lock.
///
/// Notifications have rising numbers. They stand in lanes, one for each context, style and set of modes, in the order
/// of their numbers. One that was taken out of the middle leaves its number in its lane, where it is passed over.
struct NotificationQueueState {
    private struct Lane {
        let home: QueuePump.ID
        let style: NotificationQueue.PostingStyle
        let modes: Set<RunLoopMode>
        var numbers = Deque<UInt64>()
    }

    private var items: [UInt64: QueuedNotification] = [:]
    private var lanes: [Lane] = []
    private var byName: [String: Numbers] = [:]
    private var bySender: [SenderKey?: Numbers] = [:]

    var count: Int { items.count }

    // MARK: Putting in

    struct Outcome {
        /// What it took the place of; to be released when the lock is.
        var replaced: [QueuedNotification] = []
        var isPostedNow = false
        /// Set when it waits.
        var queued: QueuedNotification?
    }

    /// - Parameter isAllowed: whether the loop is in one of these modes.
    mutating func enqueue(
        _ item: QueuedNotification, mask: NotificationQueue.NotificationCoalescing, home: QueuePump.ID,
        isAllowed: (Set<RunLoopMode>) -> Bool
    ) -> Outcome {
        var outcome = Outcome()
        let similar = mask.isEmpty ? [] : numbers(similarTo: item, mask: mask)
        for number in similar {
            let earlier = items[number]!
            item.modes.formUnion(earlier.modes)
            if earlier.style.rawValue > item.style.rawValue { item.style = earlier.style }
        }
        if item.style == .now {
            guard isAllowed(item.modes) else { return outcome }
            outcome.isPostedNow = true
        }
        outcome.replaced = similar.map { remove($0) }
        if !outcome.isPostedNow {
            insert(item, home: home)
            outcome.queued = item
        }
        return outcome
    }

    private mutating func insert(_ item: QueuedNotification, home: QueuePump.ID) {
        let number = QueuedNotification.numbers.add(1, ordering: .relaxed).oldValue
        item.number = number
        items[number] = item
        byName[item.name, default: .none].insert(number)
        if item.hasComparableSender { bySender[item.sender, default: .none].insert(number) }
        let lane =
            lanes.firstIndex { $0.home == home && $0.style == item.style && $0.modes == item.modes }
            ?? {
                lanes.append(Lane(home: home, style: item.style, modes: item.modes))
                return lanes.count - 1
            }()
        lanes[lane].numbers.append(number)
        dropHoles(in: lane)
    }

    // MARK: Taking out

    /// The first of a style that waits for a context and is allowed there.
    mutating func next(
        _ style: NotificationQueue.PostingStyle, home: QueuePump.ID, before limit: UInt64,
        isAllowed: (Set<RunLoopMode>) -> Bool
    ) -> UInt64? {
        var first: UInt64?
        for index in lanes.indices where lanes[index].home == home && lanes[index].style == style {
            while let number = lanes[index].numbers.first, items[number] == nil { lanes[index].numbers.popFirst() }
            guard let number = lanes[index].numbers.first, number < first ?? limit else { continue }
            if isAllowed(lanes[index].modes) { first = number }
        }
        return first
    }

    mutating func take(_ number: UInt64) -> QueuedNotification? {
        items[number] == nil ? nil : remove(number)
    }

    mutating func removeSimilar(
        to item: QueuedNotification, mask: NotificationQueue.NotificationCoalescing
    ) -> [QueuedNotification] {
        mask.isEmpty ? [] : numbers(similarTo: item, mask: mask).map { remove($0) }
    }

    mutating func removeAll(of home: QueuePump.ID) -> [QueuedNotification] {
        var removed: [QueuedNotification] = []
        for index in lanes.indices where lanes[index].home == home {
            while let number = lanes[index].numbers.popFirst() {
                if let item = take(number) { removed.append(item) }
            }
        }
        lanes.removeAll { $0.home == home }
        return removed
    }

    func hasWork(for home: QueuePump.ID) -> Bool {
        lanes.contains { $0.home == home && !$0.numbers.isEmpty }
    }

    mutating func hasWork(
        _ style: NotificationQueue.PostingStyle, for home: QueuePump.ID, modes: Set<RunLoopMode>
    ) -> Bool {
        let lane = lanes.firstIndex { $0.home == home && $0.style == style && $0.modes == modes }
        guard let lane else { return false }
        dropHoles(in: lane)
        return !lanes[lane].numbers.isEmpty
    }

    private mutating func remove(_ number: UInt64) -> QueuedNotification {
        let item = items.removeValue(forKey: number)!
        byName.remove(number, from: item.name)
        if item.hasComparableSender { bySender.remove(number, from: item.sender) }
        return item
    }

    /// A lane in which most were replaced is made short again, so that coalescing keeps the memory of what waits.
    private mutating func dropHoles(in index: Int) {
        while let number = lanes[index].numbers.first, items[number] == nil { lanes[index].numbers.popFirst() }
        guard lanes[index].numbers.count > 64, lanes[index].numbers.count > 2 * items.count else { return }
        let items = items
        lanes[index].numbers.removeAll { items[$0] == nil }
    }

    // MARK: Similar ones

    private func numbers(
        similarTo item: QueuedNotification, mask: NotificationQueue.NotificationCoalescing
    ) -> [UInt64] {
        let named = mask.contains(.onName) ? byName[item.name, default: .none] : nil
        var sent: Numbers?
        if mask.contains(.onSender) {
            guard item.hasComparableSender else { return [] }
            sent = bySender[item.sender, default: .none]
        }
        // Looks at the fewer and asks the more.
        return switch (named, sent) {
        case (let named?, let sent?):
            named.count < sent.count ? named.filter(sent.contains) : sent.filter(named.contains)
        case (let only?, nil), (nil, let only?): only.filter { _ in true }
        case (nil, nil): []
        }
    }

    /// A set of numbers, which most of the time is one.
    fileprivate enum Numbers {
        case none
        case one(UInt64)
        case many(Set<UInt64>)

        var count: Int {
            switch self {
            case .none: 0
            case .one: 1
            case .many(let numbers): numbers.count
            }
        }

        func contains(_ number: UInt64) -> Bool {
            switch self {
            case .none: false
            case .one(let only): only == number
            case .many(let numbers): numbers.contains(number)
            }
        }

        func filter(_ isIncluded: (UInt64) -> Bool) -> [UInt64] {
            switch self {
            case .none: []
            case .one(let only): isIncluded(only) ? [only] : []
            case .many(let numbers): numbers.filter(isIncluded).sorted()
            }
        }

        mutating func insert(_ number: UInt64) {
            switch self {
            case .none: self = .one(number)
            case .one(let other): self = .many([other, number])
            case .many(var numbers):
                self = .none
                numbers.insert(number)
                self = .many(numbers)
            }
        }

        /// - Returns: whether it is empty now.
        mutating func remove(_ number: UInt64) -> Bool {
            switch self {
            case .none: return true
            case .one(let only):
                if only == number { self = .none }
            case .many(var numbers):
                self = .none
                numbers.remove(number)
                if !numbers.isEmpty { self = .many(numbers) }
            }
            return count == 0
        }
    }
}

extension Dictionary where Value == NotificationQueueState.Numbers {
    fileprivate mutating func remove(_ number: UInt64, from key: Key) {
        if self[key]?.remove(number) == true { self[key] = nil }
    }
}
