// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("Priority queue with the least element first", .limited)
struct PriorityQueueTests {
    @Test(
        "Elements leave the priority queue in sorted order, after any insertions and removals",
        arguments: 1...20 as ClosedRange<UInt64>)
    func random(seed: UInt64) {
        var generator = SplitMix(state: seed)
        var (queue, array): (PriorityQueue<Int>, [Int]) = (PriorityQueue(), [])
        for _ in 0..<2000 {
            switch Int.random(in: 0..<100, using: &generator) {
            case 0:
                let rest = Int.random(in: 0..<3, using: &generator)
                queue.removeAll { $0 % 3 == rest }
                array.removeAll { $0 % 3 == rest }
            case 1..<60:
                let number = Int.random(in: 0..<500, using: &generator)
                queue.insert(number)
                array.append(number)
            default:
                let least = array.min()
                #expect(queue.first == least)
                let popped = queue.popFirst()
                #expect(popped == least)
                if let least { array.remove(at: array.firstIndex(of: least)!) }
            }
            #expect(queue.count == array.count && queue.isEmpty == array.isEmpty)
        }
        #expect(Array(queue.unordered).sorted() == array.sorted())
        var rest: [Int] = []
        while let least = queue.popFirst() { rest.append(least) }
        #expect(rest == array.sorted())
    }
}
