/// The three-part index of observers (C11): by name (and there by object, or any object), by object with any name,
/// and those that want everything.
///
/// Finding the observers of a post costs what they are, not how many others there are; adding one and removing one
/// are O(1). Observers of one post come in registration order across all four kinds (C3): every list is in that
/// order, and up to four lists are merged.
///
/// A value type; not thread-safe by itself.
///
/// It is inlinable, so that each module that uses it has it for its own types: in the process a post costs half a
/// microsecond, most of which would go into calls through tables of a generic type's requirements.
public struct ObserverIndex<Name: Hashable, Object: Hashable, Observer> {
    /// Where an observer is stored; valid until it is removed.
    public struct Position: Hashable, Sendable {
        @usableFromInline let slot: Int32

        @inlinable init(slot: Int32) {
            self.slot = slot
        }
    }

    /// Observers live in one array; the ones of a list are linked through it, so that removal moves nothing.
    @usableFromInline struct Node {
        @usableFromInline var observer: Observer?
        @usableFromInline var order: UInt64
        @usableFromInline var name: Name?
        @usableFromInline var object: Object?
        @usableFromInline var previous: Int32
        @usableFromInline var next: Int32

        @inlinable init(observer: Observer?, order: UInt64, name: Name?, object: Object?) {
            self.observer = observer
            self.order = order
            self.name = name
            self.object = object
            previous = noSlot
            next = noSlot
        }
    }

    @usableFromInline struct List {
        @usableFromInline var first: Int32 = noSlot
        @usableFromInline var last: Int32 = noSlot

        @inlinable init() {}

        @inlinable var isEmpty: Bool { first == noSlot }
    }

    @usableFromInline struct NamedLists {
        @usableFromInline var anyObject = List()
        @usableFromInline var byObject: [Object: List] = [:]

        @inlinable init() {}

        @inlinable var isEmpty: Bool { anyObject.isEmpty && byObject.isEmpty }
    }

    /// The nodes of all lists, in one array with reusable slots.
    @usableFromInline struct Nodes {
        @usableFromInline var storage: [Node] = []
        @usableFromInline var freeSlots: [Int32] = []

        @inlinable init() {}

        @inlinable var count: Int { storage.count - freeSlots.count }

        @inlinable subscript(slot: Int32) -> Node {
            // A part of it is read in place.
            _read { yield storage[Int(slot)] }
        }

        @inlinable mutating func allocate(_ node: Node) -> Int32 {
            if let slot = freeSlots.popLast() {
                storage[Int(slot)] = node
                return slot
            }
            storage.append(node)
            return Int32(storage.count - 1)
        }

        /// Takes a node out, which is in no list any more. It is moved: nothing is retained on the way.
        @inlinable mutating func free(_ slot: Int32) -> Node {
            var node = Node(observer: nil, order: 0, name: nil, object: nil)
            swap(&storage[Int(slot)], &node)
            freeSlots.append(slot)
            return node
        }

        @inlinable mutating func link(_ slot: Int32, into list: inout List) {
            storage[Int(slot)].previous = list.last
            if list.last == noSlot { list.first = slot } else { storage[Int(list.last)].next = slot }
            list.last = slot
        }

        /// Closes the gap that a node between these two leaves in its list.
        @inlinable mutating func close(_ gap: (previous: Int32, next: Int32), in list: inout List) {
            if gap.previous == noSlot { list.first = gap.next } else { storage[Int(gap.previous)].next = gap.next }
            if gap.next == noSlot { list.last = gap.previous } else { storage[Int(gap.next)].previous = gap.previous }
        }
    }

    @usableFromInline var nodes = Nodes()
    @usableFromInline var named: [Name: NamedLists] = [:]
    @usableFromInline var objectOnly: [Object: List] = [:]
    @usableFromInline var wildcards = List()
    @usableFromInline var nextOrder: UInt64 = 0

    @inlinable public init() {}

    @inlinable public var count: Int { nodes.count }

    @inlinable public subscript(position: Position) -> Observer {
        guard let observer = nodes[position.slot].observer else {
            preconditionFailure("the observer at this position was removed")
        }
        return observer
    }

    /// The place in the order of registration of the observer at `position`; nil when it was removed. As no other ever
    /// has the same, who remembers both notices that the position is another's now.
    @inlinable public func order(at position: Position) -> UInt64? {
        guard position.slot < nodes.storage.count, nodes[position.slot].observer != nil else { return nil }
        return nodes[position.slot].order
    }

    /// The order that the next observer will have.
    @inlinable public var orderOfNext: UInt64 { nextOrder }

    /// Adds `observer` behind all others. Nil for `name` or `object` means any.
    @inlinable public mutating func insert(_ observer: Observer, name: Name?, object: Object?) -> Position {
        let node = Node(observer: observer, order: nextOrder, name: name, object: object)
        nextOrder += 1
        let slot = nodes.allocate(node)
        switch (name, object) {
        case (let name?, let object?):
            nodes.link(slot, into: &named[name, default: NamedLists()].byObject[object, default: List()])
        case (let name?, nil): nodes.link(slot, into: &named[name, default: NamedLists()].anyObject)
        case (nil, let object?): nodes.link(slot, into: &objectOnly[object, default: List()])
        case (nil, nil): nodes.link(slot, into: &wildcards)
        }
        return Position(slot: slot)
    }

    /// Removes the observer at `position`, which must not have been removed before.
    @inlinable @discardableResult
    public mutating func remove(at position: Position) -> Observer {
        let slot = position.slot
        let links = (nodes[slot].previous, nodes[slot].next)
        let node = nodes.free(slot)
        guard let observer = node.observer else {
            preconditionFailure("the observer at this position was removed already")
        }
        switch (node.name, node.object) {
        case (let name?, let object):
            // One look into the table, as texts take long to hash.
            let place = named.index(forKey: name)!
            if let object {
                let other = named.values[place].byObject.index(forKey: object)!
                nodes.close(links, in: &named.values[place].byObject.values[other])
                if named.values[place].byObject.values[other].isEmpty {
                    named.values[place].byObject.remove(at: other)
                }
            } else {
                nodes.close(links, in: &named.values[place].anyObject)
            }
            if named.values[place].isEmpty { named.remove(at: place) }
        case (nil, let object?):
            let place = objectOnly.index(forKey: object)!
            nodes.close(links, in: &objectOnly.values[place])
            if objectOnly.values[place].isEmpty { objectOnly.remove(at: place) }
        case (nil, nil):
            nodes.close(links, in: &wildcards)
        }
        // The memory of many goes with the last of them.
        if nodes.count == 0, nodes.storage.count > 64 { nodes = Nodes() }
        return observer
    }

    /// Calls `body` with every observer of a post of `name` from `object`, in registration order (table C1).
    ///
    /// - Parameter object: nil for a post without an object, which only the observers of any object match.
    @inlinable public func forEachMatch(name: Name, object: Object?, _ body: (Observer) -> Void) {
        let lists = named[name]
        var anyObject = lists?.anyObject.first ?? noSlot
        var exact = noSlot
        var byObject = noSlot
        if let object {
            exact = lists?.byObject[object]?.first ?? noSlot
            byObject = objectOnly[object]?.first ?? noSlot
        }
        var any = wildcards.first
        // A four-way merge by registration order; almost always three of the four are empty.
        while true {
            var earliest = noSlot
            var order = UInt64.max
            func consider(_ slot: Int32) {
                guard slot != noSlot, nodes[slot].order < order else { return }
                order = nodes[slot].order
                earliest = slot
            }
            consider(exact)
            consider(anyObject)
            consider(byObject)
            consider(any)
            guard earliest != noSlot else { return }
            let next = nodes[earliest].next
            if earliest == exact {
                exact = next
            } else if earliest == anyObject {
                anyObject = next
            } else if earliest == byObject {
                byObject = next
            } else {
                any = next
            }
            body(nodes[earliest].observer!)
        }
    }
}

/// No slot: the end of a list.
@inlinable var noSlot: Int32 { -1 }
