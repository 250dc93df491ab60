// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCollections

@Suite("Sorted set", .limited)
struct SortedSetTests {
    @Test(
        "A sorted set agrees with a sorted array after random insertions and removals",
        arguments: 1...20 as ClosedRange<UInt64>)
    func random(seed: UInt64) {
        var generator = SplitMix(state: seed)
        var (set, array): (SortedSet<Int>, [Int]) = (SortedSet(), [])
        let size = [3, 40, 3000].randomElement(using: &generator)!
        let isAscending = seed % 2 == 0
        for _ in 0..<8000 {
            let number =
                isAscending && Bool.random(using: &generator)
                ? (array.last ?? 0) + 1 : Int.random(in: 0...2 * size, using: &generator)
            let place = array.firstIndex { $0 >= number } ?? array.count
            let isThere = place < array.count && array[place] == number
            if Int.random(in: 0..<2 * size, using: &generator) >= array.count {
                let isNew = set.insert(number)
                #expect(isNew == !isThere)
                if !isThere { array.insert(number, at: place) }
            } else {
                let isRemoved = set.remove(number)
                #expect(isRemoved == isThere)
                if isThere { array.remove(at: place) }
            }
            #expect(set.count == array.count && set.last == array.last)
            let other = Int.random(in: 0...2 * size, using: &generator)
            #expect(set.first(from: other) == array.first { $0 >= other })
        }
        #expect(Array(set) == array && set == SortedSet(sorted: array))
        let number = Int.random(in: 0...2 * size, using: &generator)
        #expect(Array(set.all(from: number)) == array.filter { $0 >= number })
        for number in array.shuffled(using: &generator) {
            let isRemoved = set.remove(number)
            #expect(isRemoved)
        }
        #expect(set.isEmpty && set.last == nil && Array(set).isEmpty)
    }

    @Test("Sets with equal elements are equal in any storage")
    func equal() {
        var left = SortedSet(sorted: 1...2000)
        for number in 1...1990 { left.remove(number) }
        var right = SortedSet(sorted: 1991...2000)
        #expect(left == right)
        right.insert(2001)
        #expect(left != right)
    }
}
