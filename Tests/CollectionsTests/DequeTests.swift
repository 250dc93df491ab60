// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("Double-ended queue", .limited)
struct DequeTests {
    @Test("Thousands of random operations agree with an array", arguments: [1, 2, 3, 0xDE0E] as [UInt64])
    func random(seed: UInt64) {
        var generator = SplitMix(state: seed)
        var queue = Deque<Int>()
        var model: [Int] = []
        var copy = (queue: queue, model: model)
        for step in 0..<8_000 {
            // Phases that grow and phases that shrink, so that the ring wraps around at every size.
            let growth = (step / 1_000) % 2 == 0 ? 0.65 : 0.3
            switch Double.random(in: 0..<1, using: &generator) {
            case ..<(growth * 0.8):
                queue.append(step)
                model.append(step)
            case ..<growth:
                queue.prepend(step)
                model.insert(step, at: 0)
            case ..<0.97:
                #expect(queue.popFirst() == (model.isEmpty ? nil : model.removeFirst()), "seed \(seed), step \(step)")
            case ..<0.98:
                let divisor = Int.random(in: 2...9, using: &generator)
                queue.removeAll { $0 % divisor == 0 }
                model.removeAll { $0 % divisor == 0 }
            case ..<0.9825:
                #expect(copy.queue.elementsEqual(copy.model), "a copy is a value of its own: seed \(seed)")
                copy = (queue, model)
            case ..<0.983:
                queue.removeAll()
                model.removeAll()
            default:
                #expect(queue.elementsEqual(model), "seed \(seed), step \(step)")
                #expect(queue.indices.allSatisfy { queue[$0] == model[$0] }, "seed \(seed), step \(step)")
            }
            #expect(queue.count == model.count && queue.isEmpty == model.isEmpty, "seed \(seed), step \(step)")
            #expect(queue.first == model.first && queue.last == model.last, "seed \(seed), step \(step)")
            let bound = max(Deque<Int>.keptCapacity, 4 * queue.count)
            #expect(queue.capacity <= bound, "seed \(seed), step \(step)")
        }
        #expect(queue.elementsEqual(model), "seed \(seed)")
    }

    @Test("A queue can be filled from its front alone")
    func prepending() {
        var queue = Deque<Int>()
        for number in 1...100 {
            queue.prepend(number)
            #expect(queue.elementsEqual((1...number).reversed()))
        }
    }

    @Test("A queue releases the memory of a burst, and keeps a small capacity")
    func shrinks() {
        var queue = Deque(0..<100_000)
        #expect(queue.capacity == 131_072)
        for _ in 0..<99_000 { queue.popFirst() }
        #expect(queue.capacity <= 4_096)
        #expect(queue.elementsEqual(99_000..<100_000))
        while queue.popFirst() != nil {}
        #expect(queue.capacity == Deque<Int>.keptCapacity)
        queue.removeAll()
        #expect(queue.capacity == 0)
    }

    @Test("A queue that alternates between empty and a few elements keeps its capacity")
    func keeps() {
        var queue = Deque<Int>()
        for round in 0..<100 {
            for number in 0..<Deque<Int>.keptCapacity { queue.append(number) }
            while queue.popFirst() != nil {}
            #expect(queue.capacity == Deque<Int>.keptCapacity, "round \(round)")
        }
    }

    @Test("Popped and removed elements are released")
    func released() {
        final class Mark {}
        var queue = Deque<Mark>()
        weak var taken: Mark?
        weak var removed: Mark?
        do {
            let marks = [Mark(), Mark()]
            (taken, removed) = (marks[0], marks[1])
            for mark in marks { queue.append(mark) }
        }
        #expect(taken != nil && removed != nil)
        queue.popFirst()
        #expect(taken == nil && removed != nil)
        queue.removeAll { _ in true }
        #expect(removed == nil)
    }

    @Test("removeAll leaves the queue unchanged if its condition throws")
    func throwing() {
        struct Refusal: Error {}
        var queue = Deque(0..<10)
        #expect(throws: Refusal.self) {
            try queue.removeAll { number in if number == 5 { throw Refusal() } else { true } }
        }
        #expect(queue.elementsEqual(0..<10))
    }

    @Test("nil can be an element of a queue of optionals")
    func optional() {
        var queue = Deque<Int?>([1, nil, 3])
        #expect(queue.popFirst() == .some(1))
        #expect(queue.popFirst() == .some(nil))
        #expect(queue.count == 1)
    }
}
