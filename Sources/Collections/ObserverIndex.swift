// SPDX-License-Identifier: Apache-2.0
/// The index of observers by name and object, with any name or any object allowed (C11). Notification centers look up
/// the observers of each post in it: the service, and the center within a process.
///
/// A lookup costs only as much as the number of matching observers. Insertion and removal are O(1). The observers of a
/// post are visited in the order of registration (C3). They come from up to four lists: those for its name and object,
/// for its name, for its object, and for all posts. Each list is in that order, and the lists are merged.
///
/// The index has one owner and cannot be copied. A read of a copyable index would copy it, and retain and release each
/// of its parts. Not thread-safe by itself.
///
/// It is inlinable, so that each module can specialize it for its own types. A post within the process costs half a
/// microsecond. Calls of a generic type that is not specialized would take most of that.
public struct ObserverIndex<Name: Hashable, Object: Hashable, Observer>: ~Copyable {
    /// The position of an observer, for its removal. It is valid until then; later another observer may get it.
    public struct Position: Hashable, Sendable {
        @usableFromInline let slot: Int32

        @inlinable init(slot: Int32) {
            self.slot = slot
        }
    }

    /// An observer in its list. All nodes are in one array and are linked by their slots, so that a removal moves no
    /// other node.
    @usableFromInline struct Node {
        /// Nil in a free slot.
        @usableFromInline var observer: Observer?
        /// The position of the observer in the order of registration.
        @usableFromInline var order: UInt64
        /// The slot of the list that the node is in.
        @usableFromInline var list: Int32
        @usableFromInline var previous: Int32 = noSlot
        @usableFromInline var next: Int32 = noSlot

        @inlinable init(observer: Observer?, order: UInt64, list: Int32) {
            self.observer = observer
            self.order = order
            self.list = list
        }
    }

    /// The observers of one name and object, either of which may be any. A node refers to its list, so that a removal
    /// does not hash the name and the object.
    @usableFromInline struct List {
        /// Nil for any.
        @usableFromInline var name: Name?
        /// Nil for any.
        @usableFromInline var object: Object?
        @usableFromInline var first: Int32 = noSlot
        @usableFromInline var last: Int32 = noSlot
        /// In a list for a name and any object: the slots of the lists for that name and an object.
        @usableFromInline var byObject = SteadyDictionary<Object, Int32>()
        /// In a list for a name and an object: the slot of the list for that name and any object.
        @usableFromInline var ofName: Int32 = noSlot
        /// Whether the list is in ``unusedNames``.
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
            // Parts of an element are read and modified in place.
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

        /// Removes an element, and leaves another one in the free slot. The element is moved, so that no reference
        /// counts change.
        @inlinable mutating func take(_ slot: Int32, leaving rest: Element) -> Element {
            var element = rest
            swap(&storage[Int(slot)], &element)
            free.append(slot)
            return element
        }
    }

    @usableFromInline var nodes = Slots<Node>()
    /// All lists; the first one is for all posts.
    @usableFromInline var lists = Slots<List>()
    /// By name, the slot of the list for that name and any object. A name that has only observers with an object also
    /// has this list.
    @usableFromInline var named = SteadyDictionary<Name, Int32>()
    /// By object, the slot of the list for any name and that object.
    @usableFromInline var objectOnly = SteadyDictionary<Object, Int32>()
    /// The slots of empty lists of names. A few are kept, as a removed name is often registered again soon.
    @usableFromInline var unusedNames: [Int32] = []
    /// The position of the next inserted observer in the order of registration.
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

    /// Returns the position in the order of registration of the observer at `position`; nil if it was removed. These
    /// positions are unique. A caller that stores both thus detects that another observer has the position.
    @inlinable public func order(at position: Position) -> UInt64? {
        guard position.slot < nodes.storage.count, nodes[position.slot].observer != nil else { return nil }
        return nodes[position.slot].order
    }

    /// The position of the next inserted observer in the order of registration.
    @inlinable public var orderOfNext: UInt64 { nextOrder }

    /// Inserts `observer` behind all others. Nil for `name` or `object` means any.
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
        // The memory of many observers is released with the last of them.
        if nodes.count == 0, nodes.storage.count > 64 {
            let order = nextOrder
            self = ObserverIndex()
            nextOrder = order
        }
        return observer
    }

    /// Returns the slot of the list for a name and an object. It creates the list if necessary.
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

    /// Removes an empty list. The list of its name goes too when it has become empty.
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

    /// Removes the lists of unused names that are still empty.
    @inlinable mutating func dropUnusedNames() {
        for list in unusedNames {
            lists[list].isUnused = false
            guard lists[list].isEmpty, lists[list].byObject.isEmpty else { continue }
            named[lists[list].name!] = nil
            _ = lists.take(list, leaving: List(name: nil, object: nil))
        }
        unusedNames.removeAll(keepingCapacity: true)
    }

    /// Gives all observers a new order of registration, after observers were restored in another order.
    ///
    /// - Parameter order: returns the unique position of an observer.
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

    /// Returns whether the name and the object of a post make a difference for its matching observers. The service
    /// combines lost posts whose names or objects make none.
    ///
    /// - Parameters:
    ///   - name: the name of the post; nil for a name without observers.
    ///   - object: the object of the post; nil for none.
    /// - Returns: `name`, whether there may be observers of the name. `object`, whether there may be observers of the
    ///   object, with that name or any.
    @inlinable public func mayHaveObservers(name: Name?, object: Object?) -> (name: Bool, object: Bool) {
        let ofName = named.isEmpty ? nil : name.flatMap { named[$0] }
        guard let object else { return (ofName != nil, false) }
        if !objectOnly.isEmpty, objectOnly[object] != nil { return (ofName != nil, true) }
        guard let ofName else { return (false, false) }
        return (true, !lists[ofName].byObject.isEmpty && lists[ofName].byObject[object] != nil)
    }

    /// Calls `body` with each observer of a post, in the order of registration (table C1).
    ///
    /// - Parameters:
    ///   - name: the name of the post.
    ///   - object: the object of the post. Nil is for a post without one, which matches only observers of any object.
    @inlinable public func forEachMatch(name: Name, object: Object?, _ body: (Observer) -> Void) {
        // The next observer in each list: for all posts, for the name, for name and object, and for the object.
        var any = lists[0].first
        var anyObject = noSlot
        var exact = noSlot
        var byObject = noSlot
        // The object is not read unless an observer wants one, since its copy may be expensive.
        if let ofName = named[name] {
            anyObject = lists[ofName].first
            if !lists[ofName].byObject.isEmpty, let object, let list = lists[ofName].byObject[object] {
                exact = lists[list].first
            }
        }
        if !objectOnly.isEmpty, let object, let list = objectOnly[object] { byObject = lists[list].first }
        // A merge of up to four lists by the order of registration. The last one left needs no comparison.
        while true {
            let count =
                (any == noSlot ? 0 : 1) + (anyObject == noSlot ? 0 : 1) + (exact == noSlot ? 0 : 1)
                + (byObject == noSlot ? 0 : 1)
            guard count > 1 else {
                // `noSlot` is less than each slot.
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

/// The absence of a slot, which is the end of a list.
@inlinable var noSlot: Int32 { -1 }
