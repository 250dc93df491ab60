// SPDX-License-Identifier: Apache-2.0
/// A sorted set in pieces: a list of sorted arrays with at most ``pieceSize`` elements each.
///
/// A lookup takes O(log ``count``) comparisons. Insertion and removal move the elements of one piece, regardless of the
/// size of the set, so that no call takes long. A single element needs no allocation.
///
/// A value type; not thread-safe by itself. Inlinable, so that each module can specialize it for its own types.
public struct SortedSet<Element: Comparable> {
    @usableFromInline enum Storage {
        case none
        case one(Element)
        /// At least two elements, and at most a piece.
        case few([Element])
        /// At least two pieces, none of them empty.
        case pieces([[Element]])
    }

    /// The maximum number of elements in a piece.
    @inlinable static var pieceSize: Int { 512 }

    @usableFromInline var storage = Storage.none
    /// The number of elements.
    @usableFromInline var used = 0

    @inlinable public init() {}

    /// Creates a set.
    ///
    /// - Precondition: The elements are in ascending order and unique.
    @inlinable public init(sorted elements: some Sequence<Element>) {
        for element in elements { insert(element) }
    }

    @inlinable public var count: Int { used }
    @inlinable public var isEmpty: Bool { used == 0 }

    /// The greatest element; nil if the set is empty.
    @inlinable public var last: Element? {
        switch storage {
        case .none: nil
        case .one(let element): element
        case .few(let elements): elements.last
        case .pieces(let pieces): pieces.last?.last
        }
    }

    /// Inserts an element.
    ///
    /// - Returns: Whether the element was new.
    @discardableResult
    @inlinable public mutating func insert(_ element: Element) -> Bool {
        // Elements often come in ascending order. Then no search is needed.
        let isLast = last.map { $0 < element } ?? true
        guard isLast || first(from: element) != element else { return false }
        used += 1
        switch storage {
        case .none: storage = .one(element)
        case .one(let other): storage = .few(isLast ? [other, element] : [element, other])
        case .few(var elements):
            storage = .none  // so that the array is modified in place
            elements.insert(element, at: isLast ? elements.count : Self.place(of: element, in: elements))
            storage = elements.count > Self.pieceSize ? .pieces(Self.halves(of: elements, isLast)) : .few(elements)
        case .pieces(var pieces):
            storage = .none
            let piece = isLast ? pieces.count - 1 : Self.piece(for: element, in: pieces)
            let place = isLast ? pieces[piece].count : Self.place(of: element, in: pieces[piece])
            pieces[piece].insert(element, at: place)
            if pieces[piece].count > Self.pieceSize {
                pieces.replaceSubrange(piece...piece, with: Self.halves(of: pieces[piece], isLast))
            }
            storage = .pieces(pieces)
        }
        return true
    }

    /// Splits a piece with too many elements. If the new element is the last one, only this element goes to the new
    /// piece. Elements in ascending order thus leave full pieces.
    @inlinable static func halves(of elements: [Element], _ isLast: Bool) -> [[Element]] {
        let middle = isLast ? elements.count - 1 : elements.count / 2
        return [Array(elements[..<middle]), Array(elements[middle...])]
    }

    /// Removes an element.
    ///
    /// - Returns: Whether the set contained the element.
    @discardableResult
    @inlinable public mutating func remove(_ element: Element) -> Bool {
        guard first(from: element) == element else { return false }
        used -= 1
        switch storage {
        case .none, .one: storage = .none
        case .few(var elements):
            storage = .none
            elements.remove(at: Self.place(of: element, in: elements))
            storage = elements.count == 1 ? .one(elements[0]) : .few(elements)
        case .pieces(var pieces):
            storage = .none
            let piece = Self.piece(for: element, in: pieces)
            if pieces[piece].count == 1 {
                pieces.remove(at: piece)
            } else {
                pieces[piece].remove(at: Self.place(of: element, in: pieces[piece]))
            }
            if pieces.count > 1 {
                storage = .pieces(pieces)
            } else {
                storage = pieces[0].count == 1 ? .one(pieces[0][0]) : .few(pieces[0])
            }
        }
        return true
    }

    /// Returns the least element that is not less than `element`.
    @inlinable public func first(from element: Element) -> Element? {
        switch storage {
        case .none: return nil
        case .one(let only): return only < element ? nil : only
        case .few(let elements):
            let place = Self.place(of: element, in: elements)
            return place < elements.count ? elements[place] : nil
        case .pieces(let pieces):
            let piece = Self.piece(for: element, in: pieces)
            guard piece < pieces.count else { return nil }
            return pieces[piece][Self.place(of: element, in: pieces[piece])]
        }
    }

    /// Returns the index of the first piece whose last element is not less than `element`.
    @inlinable static func piece(for element: Element, in pieces: [[Element]]) -> Int {
        place(in: pieces.count) { pieces[$0][pieces[$0].count - 1] < element }
    }

    /// Returns the index of the first element that is not less than `element`.
    @inlinable static func place(of element: Element, in elements: [Element]) -> Int {
        place(in: elements.count) { elements[$0] < element }
    }

    /// Returns the first index in `0..<count` for which `isBefore` is false: a binary search.
    @inlinable static func place(in count: Int, _ isBefore: (Int) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isBefore(middle) { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

extension SortedSet: Sequence {
    /// An iterator over the elements in ascending order.
    public struct Iterator: IteratorProtocol {
        @usableFromInline let pieces: [[Element]]
        /// The indexes of the next element.
        @usableFromInline var (piece, place) = (0, 0)

        @inlinable init(_ pieces: [[Element]]) {
            self.pieces = pieces
        }

        @inlinable init(_ pieces: [[Element]], from element: Element) {
            self.pieces = pieces
            piece = SortedSet.piece(for: element, in: pieces)
            place = piece < pieces.count ? SortedSet.place(of: element, in: pieces[piece]) : 0
        }

        @inlinable public mutating func next() -> Element? {
            guard piece < pieces.count else { return nil }
            let element = pieces[piece][place]
            place += 1
            if place == pieces[piece].count { (piece, place) = (piece + 1, 0) }
            return element
        }
    }

    @inlinable public func makeIterator() -> Iterator { Iterator(pieces) }

    @inlinable public var underestimatedCount: Int { count }

    /// Returns the elements not less than `element`, in ascending order.
    @inlinable public func all(from element: Element) -> some Sequence<Element> {
        IteratorSequence(Iterator(pieces, from: element))
    }

    /// The elements as pieces, for any form of storage.
    @inlinable var pieces: [[Element]] {
        switch storage {
        case .none: []
        case .one(let element): [[element]]
        case .few(let elements): [elements]
        case .pieces(let pieces): pieces
        }
    }
}

extension SortedSet: Equatable {
    /// Whether both sets have the same elements, independent of their storage.
    @inlinable public static func == (left: SortedSet, right: SortedSet) -> Bool {
        left.count == right.count && left.elementsEqual(right)
    }
}
