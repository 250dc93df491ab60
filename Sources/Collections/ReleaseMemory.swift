// SPDX-License-Identifier: Apache-2.0
/// The release of unused memory. A collection keeps the memory of its largest size, also after most elements are gone.
/// `releaseMemory()` moves the elements to a smaller memory, in O(`count`). The service calls it when no caller waits.
extension Dictionary {
    /// Releases memory if less than an eighth of it is used. It may be called after each removal: the cost is
    /// amortized.
    @inlinable mutating func releaseIfMostlyUnused() {
        if capacity > 128, count < capacity / 8 { releaseMemory() }
    }

    /// Releases memory if at most half of it is used.
    @inlinable public mutating func releaseMemory() {
        guard capacity > 2 * count + 64 else { return }
        // Neither reserving nor filtering shrinks a dictionary.
        var copy = Dictionary(minimumCapacity: count)
        for (key, value) in self { copy[key] = value }
        self = copy
    }
}

extension Set {
    /// Releases memory if at most half of it is used.
    @inlinable public mutating func releaseMemory() {
        guard capacity > 2 * count + 64 else { return }
        var copy = Set(minimumCapacity: count)
        for element in self { copy.insert(element) }
        self = copy
    }
}

extension Array {
    /// Releases memory if at most half of it is used.
    @inlinable public mutating func releaseMemory() {
        guard capacity > 2 * count + 64 else { return }
        self = Array(unsafeUninitializedCapacity: count) { buffer, initialized in
            initialized = buffer.initialize(fromContentsOf: self)
        }
    }
}

extension SteadyDictionary {
    /// Releases memory if at most half of it is used. A large dictionary with at most 1024 entries, half of the maximum
    /// of a small one, becomes small. A removal merges the parts only at 256 entries, so that no sequence of insertions
    /// and removals splits and merges them each time.
    @inlinable public mutating func releaseMemory() {
        guard !parts.isEmpty else { return small.releaseMemory() }
        guard countOfParts <= Self.maxInOne / 2 else {
            for part in parts.indices { parts[part].releaseMemory() }
            return
        }
        var all: [Key: Value] = [:]
        for part in parts { all.merge(part) { first, _ in first } }
        (small, parts, countOfParts) = (all, [], 0)
    }
}

extension SortedSet {
    /// Releases memory if at most half of it is used.
    @inlinable public mutating func releaseMemory() {
        switch storage {
        case .none, .one: return
        case .few(var elements):
            storage = .none
            elements.releaseMemory()
            storage = .few(elements)
        case .pieces(let pieces):
            guard used < pieces.count * Self.pieceSize / 2 else { return }
            self = SortedSet(sorted: pieces.joined())
        }
    }
}

extension PriorityQueue {
    /// Releases memory if at most half of it is used.
    @inlinable public mutating func releaseMemory() { heap.releaseMemory() }
}

extension ObserverIndex {
    /// Releases memory if less than half of it is used and at most 16,384 observers are left. A larger index is not
    /// rebuilt, as that would delay callers. The memory of at most 1024 slots is too small for it.
    ///
    /// - Parameter moved: called with each observer and its new position, if positions change.
    @inlinable public mutating func releaseMemory(_ moved: (Observer, Position) -> Void) {
        named.releaseMemory()
        objectOnly.releaseMemory()
        let most = Swift.max(nodes.storage.count, lists.storage.count)
        guard most > 1024, nodes.count <= 16_384,
            nodes.count < nodes.storage.count / 2 || lists.count < lists.storage.count / 2
        else {
            return
        }
        var left = nodes.storage.filter { $0.observer != nil }
        left.sort { $0.order < $1.order }
        var rest = ObserverIndex()
        for node in left {
            let position = rest.insert(node.observer!, name: lists[node.list].name, object: lists[node.list].object)
            rest.nodes[position.slot].order = node.order
            moved(node.observer!, position)
        }
        rest.nextOrder = nextOrder
        self = rest
    }
}
