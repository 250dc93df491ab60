// SPDX-License-Identifier: Apache-2.0
/// Tables keep the memory of the most that they ever had. These give up what they do not need, at O(``count``), in a moment in
/// which nobody waits.
extension Dictionary {
    /// Gives up memory where hardly any of it is used: behind each removal that costs no more than adding did.
    @inlinable mutating func releaseRoomOfMost() {
        if capacity > 128, count < capacity / 8 { releaseRoom() }
    }

    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() {
        guard capacity > 2 * count + 64 else { return }
        // Neither reserving nor filtering makes one smaller.
        var copy = Dictionary(minimumCapacity: count)
        for (key, value) in self { copy[key] = value }
        self = copy
    }
}

extension Set {
    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() {
        guard capacity > 2 * count + 64 else { return }
        var copy = Set(minimumCapacity: count)
        for element in self { copy.insert(element) }
        self = copy
    }
}

extension Array {
    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() {
        guard capacity > 2 * count + 64 else { return }
        self = Array(unsafeUninitializedCapacity: count) { buffer, initialized in
            initialized = buffer.initialize(fromContentsOf: self)
        }
    }
}

extension SteadyDictionary {
    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() {
        guard !parts.isEmpty else { return small.releaseRoom() }
        guard countOfParts <= Self.maxInOne / 2 else {
            for part in parts.indices { parts[part].releaseRoom() }
            return
        }
        var all: [Key: Value] = [:]
        for part in parts { all.merge(part) { first, _ in first } }
        (small, parts, countOfParts) = (all, [], 0)
    }
}

extension SortedSet {
    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() {
        switch storage {
        case .none, .one: return
        case .few(var elements):
            storage = .none
            elements.releaseRoom()
            storage = .few(elements)
        case .pieces(let pieces):
            guard used < pieces.count * Self.pieceSize / 2 else { return }
            self = SortedSet(sorted: pieces.joined())
        }
    }
}

extension PriorityQueue {
    /// Gives up memory where no more than half of it is used.
    @inlinable public mutating func releaseRoom() { heap.releaseRoom() }
}

extension ObserverIndex {
    /// Gives up memory where no more than half of it is used, and few observers are left: others would wait while many
    /// are put in their places anew, and what many take is more than what they leave unused.
    ///
    /// - Parameter moved: is told the new position of each observer, if they got others.
    @inlinable public mutating func releaseRoom(_ moved: (Observer, Position) -> Void) {
        named.releaseRoom()
        objectOnly.releaseRoom()
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
