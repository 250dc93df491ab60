// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The queue of one poster's posts that wait for their posting style (Q7): first in, first out within a style.
/// ``PostingQueues`` owns the queues of all posters.
///
/// A new post coalesces with queued ones of the same name, object, or both. To find these without a search, every post
/// is in four linked lists: of its style, of its name, of its object, and of both. Insertion, removal and coalescing
/// are amortized O(1) for each post.
///
/// At-exit posts of a poster are in a queue of their own. When the poster leaves, ``release(now:number:)`` makes them
/// `asap` posts without a change of each post.
final class PostingQueue {
    /// A name and an object.
    private struct Pair: Hashable {
        let name: ExactText
        let object: ExactText
    }

    /// A post outside of its node. The nodes are in one array, which is copied when it grows or a snapshot holds it.
    private final class StoredPost {
        let post: PendingPost

        init(_ post: PendingPost) {
            self.post = post
        }
    }

    /// An element of the four lists of a post.
    private struct Node {
        /// Nil in a free slot.
        var queued: StoredPost?
        var post: PendingPost? { queued?.post }
        /// The position among all posts that were ever queued, over all posters.
        var number: UInt64
        var byteCount: Int
        /// The neighbors in the four lists, by the raw value of ``ListKind``.
        var previous: SIMD4<Int32>
        var next: SIMD4<Int32>
    }

    /// The four lists that a post is in, by the part that their posts have in common.
    private enum ListKind: Int {
        case style
        case name
        case object
        case pair
    }

    /// A linked list of nodes with its totals.
    private struct List {
        var first: Int32 = none
        var last: Int32 = none
        var byteCount = 0
        /// By ``PostingStyle/order``: the number of posts that were queued with the style.
        var counts = SIMD4<Int32>()
        var count: Int { Int(counts.wrappedSum()) }
        var isEmpty: Bool { first == none }
    }

    /// An array of nodes with reusable slots. A slot is an index of the array.
    private struct Nodes {
        private var storage: [Node] = []
        private var freeSlots: [Int32] = []

        subscript(slot: Int32) -> Node { storage[Int(slot)] }

        /// The number of nodes in use.
        var used: Int { storage.count - freeSlots.count }

        mutating func allocate(_ post: PendingPost, number: UInt64) -> Int32 {
            let unlinked = SIMD4<Int32>(repeating: none)
            let node = Node(
                queued: StoredPost(post), number: number, byteCount: post.byteCount, previous: unlinked, next: unlinked)
            if let slot = freeSlots.popLast() {
                storage[Int(slot)] = node
                return slot
            }
            storage.append(node)
            return Int32(storage.count - 1)
        }

        mutating func free(_ slot: Int32) -> PendingPost {
            freeSlots.append(slot)
            return storage[Int(slot)].queued.take()!.post
        }

        /// Moves the nodes to an array without free slots.
        ///
        /// - Returns: for each old slot the new one.
        mutating func releaseMemory() -> [Int32] {
            var moved = [Int32](repeating: none, count: storage.count)
            var rest: [Node] = []
            rest.reserveCapacity(used)
            for place in storage.indices where storage[place].queued != nil {
                moved[place] = Int32(rest.count)
                rest.append(storage[place])
            }
            for place in rest.indices {
                for kind in 0..<4 {
                    let (previous, next) = (rest[place].previous[kind], rest[place].next[kind])
                    if previous != none { rest[place].previous[kind] = moved[Int(previous)] }
                    if next != none { rest[place].next[kind] = moved[Int(next)] }
                }
            }
            (storage, freeSlots) = (rest, [])
            return moved
        }

        /// The number of slots, with free ones.
        var capacity: Int { storage.count }

        /// Appends a node to a list of this kind.
        mutating func link(_ slot: Int32, _ kind: ListKind, into list: inout List) {
            storage[Int(slot)].previous[kind.rawValue] = list.last
            if list.last == none { list.first = slot } else { storage[Int(list.last)].next[kind.rawValue] = slot }
            list.last = slot
            list.counts[storage[Int(slot)].queued!.post.style.order] += 1
            list.byteCount += storage[Int(slot)].byteCount
        }

        /// Removes a node from its list of this kind.
        mutating func unlink(_ slot: Int32, _ kind: ListKind, from list: inout List) {
            let previous = storage[Int(slot)].previous[kind.rawValue]
            let next = storage[Int(slot)].next[kind.rawValue]
            if previous == none { list.first = next } else { storage[Int(previous)].next[kind.rawValue] = next }
            if next == none { list.last = previous } else { storage[Int(next)].previous[kind.rawValue] = previous }
            list.counts[storage[Int(slot)].queued!.post.style.order] -= 1
            list.byteCount -= storage[Int(slot)].byteCount
        }
    }

    private let meter: StepMeter
    /// The connection of the poster, which is charged for the queue.
    let payer: Peer
    private var nodes = Nodes()
    /// The lists of the styles, by ``PostingStyle/order``; the list of ``PostingStyle/now`` stays empty.
    private var styles = PostingStyle.allCases.map { _ in List() }
    /// The lists by name, by object, and by both.
    private var names = SteadyDictionary<ExactText, List>()
    private var objects = SteadyDictionary<ExactText, List>()
    private var pairs = SteadyDictionary<Pair, List>()
    /// The number of posts, and their size in bytes.
    private(set) var count = 0
    private(set) var byteCount = 0
    /// An element of the round-robin of a style in ``PostingQueues``. When a queue gives up its place, the element
    /// stays there without a queue.
    final class Place {
        unowned var queue: PostingQueue?

        init(_ queue: PostingQueue) { self.queue = queue }
    }

    /// The places of this queue in the round-robins, by ``PostingStyle/order``; nil where it has none.
    var places = PostingStyle.allCases.map { _ -> Place? in nil }
    /// The departure of the poster: its time as ``Clock/uptime``, and its position among all queued posts. From then on
    /// the at-exit posts are due as `asap` posts. Nil before.
    private var exit: (time: Int64, number: UInt64)?

    init(payer: Peer, meter: StepMeter) {
        self.payer = payer
        self.meter = meter
    }

    var poster: ClientName { payer.name }

    /// Whether no post of a style waits.
    func isEmpty(_ style: PostingStyle) -> Bool { list(of: style).isEmpty }

    /// The number of posts by ``PostingStyle/order``.
    var counts: SIMD4<Int> {
        var counts = SIMD4<Int>()
        for style in PostingStyle.allCases { counts[style.order] = list(of: style).count }
        return counts
    }

    /// The number of posts with this name and object, by ``PostingStyle/order``.
    func counts(name: String, object: String) -> SIMD4<Int> {
        let queued = pairs[Pair(name: ExactText(name), object: ExactText(object))]?.counts ?? SIMD4()
        var counts = SIMD4<Int>(truncatingIfNeeded: queued)
        if exit != nil { counts.move(from: .atExit, to: .asap) }
        return counts
    }

    /// The posts of a style. After the departure of the poster, the at-exit posts count as `asap` posts.
    private func list(of style: PostingStyle) -> List {
        guard exit != nil else { return styles[style.order] }
        return style == .asap ? styles[PostingStyle.atExit.order] : List()
    }

    /// Makes the at-exit posts of a poster that has left due as soon as possible.
    ///
    /// - Parameters:
    ///   - now: ``Clock/uptime``, from which `expires-after` counts.
    ///   - number: the position of the departure among all queued posts.
    func release(now: Int64, number: UInt64) {
        invariant(styles[PostingStyle.atExit.order].count == count, "R4: at-exit posts are in a queue of their own")
        exit = (now, number)
    }

    /// Returns a post with the style and expiry that it has since the departure of the poster.
    private func released(_ post: PendingPost) -> PendingPost { Self.released(post, exit) }

    private static func released(_ post: PendingPost, _ exit: (time: Int64, number: UInt64)?) -> PendingPost {
        guard let exit else { return post }
        var post = post
        post.style = .asap
        if let seconds = post.secondsAfterExit.take() { post.expiry = Clock.expiry(in: seconds, from: exit.time) }
        return post
    }

    /// The position of the first post of a style among all queued posts of all posters; nil when there is none.
    /// Released posts have the position of the departure.
    func firstNumber(of style: PostingStyle) -> UInt64? {
        let slot = list(of: style).first
        return slot == none ? nil : exit?.number ?? nodes[slot].number
    }

    /// The posts of a style at one moment, the oldest first.
    func snapshot(of style: PostingStyle) -> some Sequence<PendingPost> {
        sequence(state: list(of: style).first) { [nodes, exit] slot -> PendingPost? in
            guard slot != none, let post = nodes[slot].post else { return nil }
            slot = nodes[slot].next[ListKind.style.rawValue]
            return Self.released(post, exit)
        }
    }

    /// Puts a post behind all others of its style.
    func append(_ post: PendingPost, number: UInt64) {
        let slot = nodes.allocate(post, number: number)
        let (name, object) = (ExactText(post.name), ExactText(post.object))
        nodes.link(slot, .style, into: &styles[post.style.order])
        nodes.link(slot, .name, into: &names[name, default: List()])
        nodes.link(slot, .object, into: &objects[object, default: List()])
        nodes.link(slot, .pair, into: &pairs[Pair(name: name, object: object), default: List()])
        count += 1
        byteCount += nodes[slot].byteCount
    }

    /// Takes the first post of a style.
    func popFirst(_ style: PostingStyle) -> PendingPost? {
        let slot = list(of: style).first
        defer { releaseMemory() }
        return slot == none ? nil : released(remove(slot))
    }

    /// Moves the posts to a smaller array when less than a sixteenth of the slots is used. Otherwise the memory of a
    /// burst would stay as long as one post stays. At a sixteenth, the moves cost little per removed post.
    private func releaseMemory() {
        guard nodes.capacity > Self.keptPlaces, nodes.used < nodes.capacity / 16 else { return }
        // Each node moves, and so do the ends of its four lists.
        meter.count(nodes.capacity / 8 + 4 * nodes.used)
        let moved = nodes.releaseMemory()
        func move(_ list: List) -> List {
            var list = list
            if list.first != none { (list.first, list.last) = (moved[Int(list.first)], moved[Int(list.last)]) }
            return list
        }
        styles = styles.map(move)
        names.updateValues(move)
        objects.updateValues(move)
        pairs.updateValues(move)
    }

    /// The number of slots whose memory is kept.
    private static let keptPlaces = 1024

    /// The number of slots for which the queue has memory, for inspection.
    var capacity: Int { nodes.capacity }

    /// Returns the number and size of the posts that equal this name and object in all parts that `coalescing` lists.
    /// For an empty set the result is 0.
    func similar(
        name: String, object: String, coalescing: Set<CoalescingKey>
    ) -> (count: Int, byteCount: Int) {
        let list = list(of: name, object, coalescing)?.list ?? List()
        return (list.count, list.byteCount)
    }

    /// Removes posts that equal this name and object in all parts that `coalescing` lists, the oldest first, and calls
    /// `body` with each.
    ///
    /// - Parameter most: the maximum number of posts.
    /// - Returns: the number of removed posts.
    func removeSimilar(
        name: String, object: String, coalescing: Set<CoalescingKey>, atMost most: Int,
        _ body: (PendingPost) -> Void = { _ in }
    ) -> Int {
        guard let (kind, list) = list(of: name, object, coalescing) else { return 0 }
        return remove(list, kind, atMost: most, body)
    }

    /// Removes posts of any name and object, style by style, the oldest of a style first.
    ///
    /// - Parameter most: the maximum number of posts.
    /// - Returns: the number of removed posts.
    func removeAny(atMost most: Int) -> Int {
        var count = 0
        for order in styles.indices where count < most {
            count += remove(styles[order], .style, atMost: most - count) { _ in }
        }
        return count
    }

    /// Removes the first posts of a list, and calls `body` with each.
    ///
    /// - Returns: their number.
    private func remove(_ list: List, _ kind: ListKind, atMost most: Int, _ body: (PendingPost) -> Void) -> Int {
        var (slot, count) = (list.first, 0)
        while slot != none, count < most {
            let next = nodes[slot].next[kind.rawValue]
            body(released(remove(slot)))
            (slot, count) = (next, count + 1)
        }
        meter.count(Self.stepsOfRemoval * count)
        releaseMemory()
        return count
    }

    /// The steps of a removal (``StepMeter``): a post is looked up by its name, by its object, and by both.
    private static let stepsOfRemoval = 16

    /// Returns the list of the posts that equal a name and an object in the parts that `coalescing` lists; nil when
    /// there are none.
    private func list(
        of name: String, _ object: String, _ coalescing: Set<CoalescingKey>
    ) -> (kind: ListKind, list: List)? {
        let (name, object) = (ExactText(name), ExactText(object))
        switch (coalescing.contains(.name), coalescing.contains(.object)) {
        case (false, false): return nil
        case (true, false): return names[name].map { (.name, $0) }
        case (false, true): return objects[object].map { (.object, $0) }
        case (true, true): return pairs[Pair(name: name, object: object)].map { (.pair, $0) }
        }
    }

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    ///
    /// - Parameter lastNumber: the greatest number of any post.
    func checkInvariants(lastNumber: UInt64) throws(BrokenInvariant) {
        func count(_ lists: some Sequence<List>) -> (Int, Int) {
            lists.reduce((0, 0)) { ($0.0 + $1.count, $0.1 + $1.byteCount) }
        }
        try require(
            exit == nil || styles[PostingStyle.atExit.order].count == self.count,
            "R4: the queue of a poster that left has only at-exit posts")
        try require(
            count(styles) == (self.count, byteCount) && count(names.values) == (self.count, byteCount)
                && count(objects.values) == (self.count, byteCount) && count(pairs.values) == (self.count, byteCount),
            "Q7: every post of \(poster) is in four lists")
        try require(nodes.used == self.count, "E1: the number of used slots is the number of posts of \(poster)")
        try require(
            !names.values.contains(where: \.isEmpty) && !objects.values.contains(where: \.isEmpty)
                && !pairs.values.contains(where: \.isEmpty), "E4: no list of \(poster) is empty")
        for (order, style) in styles.enumerated() {
            var (slot, number, posts): (Int32, UInt64, Int) = (style.first, 0, 0)
            while slot != none {
                let node = nodes[slot]
                try require(node.post?.style.order == order, "Q7: a post is in the list of its style")
                try require(node.number > number && node.number <= lastNumber, "Q7: first in, first out")
                (slot, number, posts) = (node.next[ListKind.style.rawValue], node.number, posts + 1)
                try require(posts <= style.count, "Q7: the count of a list is the number of its posts")
            }
            try require(posts == style.count, "Q7: the count of a list is the number of its posts")
        }
    }

    /// Removes a post from its four lists. An empty list of a name or object is forgotten.
    private func remove(_ slot: Int32) -> PendingPost {
        let post = nodes[slot].post!
        let (name, object) = (ExactText(post.name), ExactText(post.object))
        let pair = Pair(name: name, object: object)
        count -= 1
        byteCount -= nodes[slot].byteCount
        nodes.unlink(slot, .style, from: &styles[post.style.order])
        nodes.unlink(slot, .name, from: &names[name]!)
        if names[name]!.isEmpty { names[name] = nil }
        nodes.unlink(slot, .object, from: &objects[object]!)
        if objects[object]!.isEmpty { objects[object] = nil }
        nodes.unlink(slot, .pair, from: &pairs[pair]!)
        if pairs[pair]!.isEmpty { pairs[pair] = nil }
        return nodes.free(slot)
    }
}

extension SIMD4 where Scalar: FixedWidthInteger {
    /// Moves the count of one style to another, in counts by ``PostingStyle/order``.
    fileprivate mutating func move(from style: PostingStyle, to other: PostingStyle) {
        self[other.order] += self[style.order]
        self[style.order] = 0
    }
}

/// The absence of a slot: the end of a list.
private let none: Int32 = -1
