// SPDX-License-Identifier: Apache-2.0
/// The three-part index of observers (C11): by name (and there by object, or any object), by object with any name,
/// and those that want everything.
///
/// Finding the observers of a post costs what they are, not how many others there are; adding one and removing one
/// are O(1). Observers of one post come in registration order across all four kinds (C3): every list is in that
/// order, and up to four lists are merged.
///
/// It has one owner, and can't be copied: a read would copy it, with a reference to each of its parts. Not thread-safe by
/// itself.
///
/// It is inlinable, so that each module that uses it has it for its own types: in the process a post costs half a
/// microsecond, most of which would go into calls through tables of a generic type's requirements.
public struct ObserverIndex<Name: Hashable, Object: Hashable, Observer>: ~Copyable {
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
        /// The list that it is in.
        @usableFromInline var list: Int32
        @usableFromInline var previous: Int32 = noSlot
        @usableFromInline var next: Int32 = noSlot

        @inlinable init(observer: Observer?, order: UInt64, list: Int32) {
            self.observer = observer
            self.order = order
            self.list = list
        }
    }

    /// The observers of a name and an object, of which either may be any. A node knows its list, so that only who looks
    /// for a list has to hash.
    @usableFromInline struct List {
        @usableFromInline var name: Name?
        @usableFromInline var object: Object?
        @usableFromInline var first: Int32 = noSlot
        @usableFromInline var last: Int32 = noSlot
        /// Of a list for a name and any object: those for the name and an object.
        @usableFromInline var byObject = SteadyDictionary<Object, Int32>()
        /// Of a list for a name and an object: that for any object.
        @usableFromInline var ofName: Int32 = noSlot
        /// Whether it is among ``unusedNames``.
        @usableFromInline var isUnused = false

        @inlinable init(name: Name?, object: Object?) {
            self.name = name
            self.object = object
        }

        @inlinable var isEmpty: Bool { first == noSlot }
    }

    /// An array with reusable slots.
    @usableFromInline struct Slots<Element> {
        @usableFromInline var storage: [Element] = []
        @usableFromInline var free: [Int32] = []

        @inlinable init() {}

        @inlinable var count: Int { storage.count - free.count }

        @inlinable subscript(slot: Int32) -> Element {
            // A part of it is read, or changed, in place.
            _read { yield storage[Int(slot)] }
            _modify { yield &storage[Int(slot)] }
        }

        @inlinable mutating func put(_ element: Element) -> Int32 {
            if let slot = free.popLast() {
                storage[Int(slot)] = element
                return slot
            }
            storage.append(element)
            return Int32(storage.count - 1)
        }

        /// Takes an element out. It is moved: nothing is retained on the way.
        @inlinable mutating func take(_ slot: Int32, leaving rest: Element) -> Element {
            var element = rest
            swap(&storage[Int(slot)], &element)
            free.append(slot)
            return element
        }
    }

    @usableFromInline var nodes = Slots<Node>()
    /// The first is of those that want everything.
    @usableFromInline var lists = Slots<List>()
    @usableFromInline var named = SteadyDictionary<Name, Int32>()
    @usableFromInline var objectOnly = SteadyDictionary<Object, Int32>()
    /// Lists of names that became empty. A few are kept, as a name that went may soon come again.
    @usableFromInline var unusedNames: [Int32] = []
    @usableFromInline var nextOrder: UInt64 = 0

    @inlinable static var maxUnusedNames: Int { 8 }

    @inlinable public init() {
        _ = lists.put(List(name: nil, object: nil))
    }

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
        let list = list(name, object)
        let slot = nodes.put(Node(observer: observer, order: nextOrder, list: list))
        nextOrder += 1
        let last = lists[list].last
        if last == noSlot {
            lists[list].first = slot
        } else {
            nodes[slot].previous = last
            nodes[last].next = slot
        }
        lists[list].last = slot
        return Position(slot: slot)
    }

    /// Removes the observer at `position`, which must not have been removed before.
    @inlinable @discardableResult
    public mutating func remove(at position: Position) -> Observer {
        let node = nodes.take(position.slot, leaving: Node(observer: nil, order: 0, list: noSlot))
        guard let observer = node.observer else {
            preconditionFailure("the observer at this position was removed already")
        }
        let (list, previous, next) = (node.list, node.previous, node.next)
        if previous == noSlot { lists[list].first = next } else { nodes[previous].next = next }
        if next == noSlot { lists[list].last = previous } else { nodes[next].previous = previous }
        if lists[list].isEmpty { drop(list) }
        // The memory of many goes with the last of them.
        if nodes.count == 0, nodes.storage.count > 64 {
            let order = nextOrder
            self = ObserverIndex()
            nextOrder = order
        }
        return observer
    }

    /// The list for a name and an object, which is made if there is none.
    @inlinable mutating func list(_ name: Name?, _ object: Object?) -> Int32 {
        guard let name else {
            guard let object else { return 0 }
            if let list = objectOnly[object] { return list }
            let list = lists.put(List(name: nil, object: object))
            objectOnly[object] = list
            return list
        }
        let ofName: Int32
        if let list = named[name] {
            ofName = list
        } else {
            ofName = lists.put(List(name: name, object: nil))
            named[name] = ofName
        }
        guard let object else { return ofName }
        if let list = lists[ofName].byObject[object] { return list }
        let list = lists.put(List(name: name, object: object))
        lists[list].ofName = ofName
        lists[ofName].byObject[object] = list
        return list
    }

    /// Lets go of a list that is empty.
    @inlinable mutating func drop(_ list: Int32) {
        var list = list
        if let object = lists[list].object {
            let ofName = lists[list].ofName
            if ofName == noSlot { objectOnly[object] = nil } else { lists[ofName].byObject[object] = nil }
            _ = lists.take(list, leaving: List(name: nil, object: nil))
            guard ofName != noSlot, lists[ofName].isEmpty else { return }
            list = ofName
        }
        guard lists[list].name != nil, lists[list].byObject.isEmpty, !lists[list].isUnused else { return }
        lists[list].isUnused = true
        unusedNames.append(list)
        if unusedNames.count > Self.maxUnusedNames { dropUnusedNames() }
    }

    @inlinable mutating func dropUnusedNames() {
        for list in unusedNames {
            lists[list].isUnused = false
            guard lists[list].isEmpty, lists[list].byObject.isEmpty else { continue }
            named[lists[list].name!] = nil
            _ = lists.take(list, leaving: List(name: nil, object: nil))
        }
        unusedNames.removeAll(keepingCapacity: true)
    }

    /// Has the observers come in another order than that of their insertion.
    ///
    /// - Parameter order: of an observer; each has another one.
    @inlinable public mutating func sort(by order: (Observer) -> UInt64) {
        for slot in nodes.storage.indices {
            guard let observer = nodes.storage[slot].observer else { continue }
            nodes.storage[slot].order = order(observer)
            nextOrder = Swift.max(nextOrder, nodes.storage[slot].order + 1)
        }
        for list in lists.storage.indices where !lists.storage[list].isEmpty {
            var slots: [Int32] = []
            var slot = lists.storage[list].first
            while slot != noSlot {
                slots.append(slot)
                slot = nodes[slot].next
            }
            slots.sort { nodes[$0].order < nodes[$1].order }
            for (place, slot) in slots.enumerated() {
                nodes[slot].previous = place == 0 ? noSlot : slots[place - 1]
                nodes[slot].next = place == slots.count - 1 ? noSlot : slots[place + 1]
            }
            (lists.storage[list].first, lists.storage[list].last) = (slots[0], slots[slots.count - 1])
        }
    }

    /// Tells whether a post's name and its object make a difference to whom it matches.
    ///
    /// - Parameters:
    ///   - name: of the post; nil for one that no observer has.
    ///   - object: of the post; nil for none.
    /// - Returns: whether there may be observers of the name, and of the object: of that name, or of any. A name without any
    ///   matches what each other name without any matches, and so does an object.
    @inlinable public func mayHaveObservers(name: Name?, object: Object?) -> (name: Bool, object: Bool) {
        let ofName = named.isEmpty ? nil : name.flatMap { named[$0] }
        guard let object else { return (ofName != nil, false) }
        if !objectOnly.isEmpty, objectOnly[object] != nil { return (ofName != nil, true) }
        guard let ofName else { return (false, false) }
        return (true, !lists[ofName].byObject.isEmpty && lists[ofName].byObject[object] != nil)
    }

    /// Calls `body` with every observer of a post of `name` from `object`, in registration order (table C1).
    ///
    /// - Parameter object: nil for a post without an object, which only the observers of any object match.
    @inlinable public func forEachMatch(name: Name, object: Object?, _ body: (Observer) -> Void) {
        var any = lists[0].first
        var anyObject = noSlot
        var exact = noSlot
        var byObject = noSlot
        // Where nobody wants an object, it is not looked at: it may be costly to copy.
        if let ofName = named[name] {
            anyObject = lists[ofName].first
            if !lists[ofName].byObject.isEmpty, let object, let list = lists[ofName].byObject[object] {
                exact = lists[list].first
            }
        }
        if !objectOnly.isEmpty, let object, let list = objectOnly[object] { byObject = lists[list].first }
        // A four-way merge by registration order, as long as there are several.
        while true {
            let count =
                (any == noSlot ? 0 : 1) + (anyObject == noSlot ? 0 : 1) + (exact == noSlot ? 0 : 1)
                + (byObject == noSlot ? 0 : 1)
            guard count > 1 else {
                // No slot is the smallest number.
                var only = max(max(any, anyObject), max(exact, byObject))
                while only != noSlot {
                    body(nodes[only].observer!)
                    only = nodes[only].next
                }
                return
            }
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
