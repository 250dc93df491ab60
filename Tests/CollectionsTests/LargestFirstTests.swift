// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@Suite("Largest-first collection", .limited)
struct LargestFirstTests {
    private final class Thing: Sizable {
        let name: Int
        var size: Int
        var place = LargestFirstPlace()

        init(_ name: Int, _ size: Int) {
            self.name = name
            self.size = size
        }

        func precedes(_ other: Thing) -> Bool { name < other.name }
    }

    @Test("The first element is the one that a linear search finds, after any sequence of changes")
    func asASearchFinds() {
        var random = SplitMix.ofTest("LargestFirstTests.asASearchFinds", standard: 7)
        let things = (0..<40).map { Thing($0, 0) }
        var largest = LargestFirst<Thing>()
        for _ in 0..<20_000 {
            let thing = things[Int.random(in: 0..<40, using: &random)]
            switch Int.random(in: 0..<8, using: &random) {
            case 0: thing.size = 0
            case 1:
                thing.size = 0
                largest.remove(thing)
            default: thing.size = Int.random(in: 0..<50, using: &random)
            }
            largest.noteChange(of: thing)
            guard Int.random(in: 0..<3, using: &random) == 0 else { continue }
            let expected = things.filter { $0.size > 0 }.min { ($1.size, $0.name) < ($0.size, $1.name) }
            #expect(largest.first() === expected)
        }
    }

    @Test("Repeated size changes of an element keep at most two entries until the next query")
    func notedOnce() {
        let thing = Thing(1, 0)
        var largest = LargestFirst<Thing>()
        for _ in 0..<2 {
            for size in 1...10 {
                thing.size = size
                largest.noteChange(of: thing)
                #expect(largest.kept.count <= 2)
            }
            #expect(largest.first() === thing && largest.kept.count == 1)
        }
    }

    @Test("Elements of size 0 are soon released, even without queries")
    func nothingIsKept() {
        var largest = LargestFirst<Thing>()
        var seen: [() -> Thing?] = []
        for number in 0..<1000 {
            let thing = Thing(number, 1)
            largest.noteChange(of: thing)
            thing.size = 0
            largest.noteChange(of: thing)
            seen.append { [weak thing] in thing }
        }
        #expect(seen.filter { $0() != nil }.count <= 64)
        #expect(largest.first() == nil)
        #expect(seen.allSatisfy { $0() == nil })
    }
}
