// SPDX-License-Identifier: Apache-2.0
/// A bounded set of which one after the other is taken by chance; one that finds no room takes the place of another, by
/// chance, too. The numbers are the same in every process: it is fair, and no secret.
public struct RandomBag<Element: Hashable> {
    private let most: Int
    private var elements: [Element] = []
    private var places: [Element: Int] = [:]
    private var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    private var nextPlace: Int?

    /// - Parameter most: of the elements; at least one.
    public init(most: Int) {
        self.most = most
    }

    public var count: Int { elements.count }
    public var isEmpty: Bool { elements.isEmpty }

    /// Puts one in, if it is not there.
    ///
    /// - Returns: the one whose place it took.
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

    /// The one that is taken next.
    public var next: Element? {
        mutating get {
            guard !elements.isEmpty else { return nil }
            let place = nextPlace ?? random()
            nextPlace = place
            return elements[place]
        }
    }

    /// Takes ``next``.
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
        // Knuth's numbers for a linear congruential generator; the upper bits are the good ones.
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int((state >> 33) % UInt64(elements.count))
    }
}
