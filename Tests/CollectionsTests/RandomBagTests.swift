// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("Bag with removal in random order", .limited)
struct RandomBagTests {
    @Test("Each element is taken once, in random order")
    func taken() {
        var bag = RandomBag<Int>(most: 100)
        for number in 0..<100 { #expect(bag.insert(number) == nil) }
        #expect(bag.insert(7) == nil && bag.count == 100, "it is there")
        var taken: [Int] = []
        while let next = bag.next {
            #expect(bag.next == next, "looking takes nothing")
            bag.removeNext()
            taken.append(next)
        }
        #expect(taken.sorted() == Array(0..<100) && taken != taken.sorted() && bag.isEmpty)
        bag.removeNext()
        #expect(bag.insert(1) == nil && bag.next == 1)
    }

    @Test("In a flood a full bag remains bounded, and one element among many is still taken regularly")
    func flood() {
        var (bag, found) = (RandomBag<Int>(most: 64), 0)
        for round in 0..<1000 {
            #expect(round > 0 || bag.insert(-1) == nil)
            _ = bag.insert(-1)
            for number in 0..<30 { _ = bag.insert(1000 * (round + 1) + number) }
            for _ in 0..<10 {
                guard let next = bag.next else { break }
                if next == -1 { found += 1 }
                bag.removeNext()
            }
            #expect(bag.count <= 64)
        }
        // A sixth of the chances at least.
        #expect(found > 80, "\(found)")
    }
}
