/// A queue whose both ends cost O(1) amortised, and whose memory shrinks when it is empty.
struct Ring<Element> {
    /// Nil where there is no element; the size is a power of two.
    private var slots: [Element?] = []
    private var head = 0
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    var first: Element? {
        count == 0 ? nil : slots[head]
    }

    mutating func append(_ element: Element) {
        if count == slots.count { grow() }
        slots[(head + count) & (slots.count - 1)] = element
        count += 1
    }

    @discardableResult
    mutating func removeFirst() -> Element {
        let element = slots[head].take()!
        head = (head + 1) & (slots.count - 1)
        count -= 1
        // A burst leaves no large array behind.
        if count == 0, slots.count > 1_024 { self = Ring() }
        return element
    }

    private mutating func grow() {
        var larger: [Element?] = []
        larger.reserveCapacity(max(8, slots.count * 2))
        for offset in 0..<count { larger.append(slots[(head + offset) & (slots.count - 1)]) }
        while larger.count < max(8, slots.count * 2) { larger.append(nil) }
        slots = larger
        head = 0
    }
}
