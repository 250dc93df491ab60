// SPDX-License-Identifier: Apache-2.0
/// A bounded set with pseudorandom removal. An element inserted into a full set replaces a pseudorandom one. The random
/// sequence is the same in each process: it is fair, but predictable.
public struct RandomBag<Element: Hashable> {
    private let most: Int
    private var elements: [Element] = []
    private var places: [Element: Int] = [:]
    private var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    private var nextPlace: Int?

    /// - Parameter most: The maximum number of elements; at least one.
    public init(most: Int) {
        self.most = most
    }

    public var count: Int { elements.count }
    public var isEmpty: Bool { elements.isEmpty }

    /// Inserts an element, unless the set contains it.
    ///
    /// - Returns: The replaced element; nil if none was replaced.
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

    /// The element that is removed next.
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

    private mutating func random() -> Int {
        // Knuth's constants for a linear congruential generator, whose upper bits are the better ones.
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int((state >> 33) % UInt64(elements.count))
    }
}
