// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("A bag of which chance takes one", .limited)
struct RandomBagTests {
    @Test("Each is taken once, in an order of chance")
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

    @Test("In a flood one that is new takes the place of any other, and one among many is taken in its time")
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
