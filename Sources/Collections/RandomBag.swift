// SPDX-License-Identifier: Apache-2.0
/// A bounded set: an element that is inserted into a full set replaces a pseudorandom one. Elements are also taken in
/// pseudorandom order. A flood of elements thus cannot keep all others out.
///
/// The random sequence is the same in each process: it is fair, but predictable.
public struct RandomBag<Element: Hashable> {
    /// The maximum number of elements.
    private let most: Int
    /// All elements, in no particular order.
    private var elements: [Element] = []
    /// The index of each element in ``elements``.
    private var places: [Element: Int] = [:]
    /// The state of the random number generator.
    private var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    /// The index of ``next``, once it was chosen.
    private var nextPlace: Int?

    /// - Parameter most: the maximum number of elements, at least one.
    public init(most: Int) {
        self.most = most
    }

    public var count: Int { elements.count }
    public var isEmpty: Bool { elements.isEmpty }

    /// Inserts an element, unless the set has it.
    ///
    /// - Returns: the replaced element; nil if none was replaced.
    public mutating func insert(_ element: Element) -> Element? {
        guard places[element] == nil else { return nil }
        guard elements.count == most else {
            places[element] = elements.count
            elements.append(element)
            return nil
        }
        let place = random()
        let replaced = elements[place]
        places[replaced] = nil
        elements[place] = element
        places[element] = place
        return replaced
    }

    /// The element that ``removeNext()`` removes, chosen at random; nil if the set is empty.
    public var next: Element? {
        mutating get {
            guard !elements.isEmpty else { return nil }
            let place = nextPlace ?? random()
            nextPlace = place
            return elements[place]
        }
    }

    /// Removes ``next``.
    public mutating func removeNext() {
        guard next != nil, let place = nextPlace else { return }
        nextPlace = nil
        places[elements[place]] = nil
        let last = elements.removeLast()
        guard place < elements.count else { return }
        elements[place] = last
        places[last] = place
    }

    /// Returns the index of a pseudorandom element.
    private mutating func random() -> Int {
        // Knuth's constants for a linear congruential generator, whose upper bits are the better ones.
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int((state >> 33) % UInt64(elements.count))
    }
}
