// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCollections

/// What has become empty for the most part gives up its memory, and has what it had.
@Suite("E8: release of memory by nearly empty collections", .limited)
struct ReleaseMemoryTests {
    @Test("releaseMemory shrinks a dictionary, a set and an array to their contents", arguments: [0, 1, 100, 9000])
    func plain(left: Int) {
        var dictionary = Dictionary(uniqueKeysWithValues: (0..<20_000).map { ($0, $0) })
        var set = Set(0..<20_000)
        var array = Array(0..<20_000)
        let (before, capacity) = (dictionary.capacity, array.capacity)
        for key in left..<20_000 {
            dictionary[key] = nil
            set.remove(key)
        }
        array.removeLast(20_000 - left)
        #expect(dictionary.capacity == before && array.capacity == capacity)
        dictionary.releaseMemory()
        set.releaseMemory()
        array.releaseMemory()
        #expect([dictionary.capacity, set.capacity, array.capacity].allSatisfy { $0 <= 2 * left + 64 })
        #expect(set == Set(0..<left))
        #expect(array == Array(0..<left) && dictionary == Dictionary(uniqueKeysWithValues: (0..<left).map { ($0, $0) }))
    }

    @Test("releaseMemory leaves a dictionary unchanged that is more than half full")
    func used() {
        var dictionary = Dictionary(uniqueKeysWithValues: (0..<20_000).map { ($0, $0) })
        let before = dictionary.capacity
        for key in 15_000..<20_000 { dictionary[key] = nil }
        dictionary.releaseMemory()
        #expect(dictionary.capacity == before && dictionary.count == 15_000)
    }

    @Test(
        "releaseMemory shrinks a SteadyDictionary, and removes its parts at up to 1,024 entries",
        arguments: [0, 3, 1024, 1025, 5000])
    func steady(left: Int) {
        var steady = SteadyDictionary<Int, Int>()
        for key in 0..<50_000 { steady[key] = key }
        for key in left..<50_000 { steady[key] = nil }
        steady.releaseMemory()
        #expect(steady.parts.isEmpty == (left <= 1024))
        #expect(steady.parts.reduce(steady.small.capacity) { $0 + $1.capacity } <= 2 * left + 129 * 64)
        #expect(steady.count == left && (0..<left).allSatisfy { steady[$0] == $0 } && steady[left] == nil)
        steady[-1] = 7
        #expect(steady.count == left + 1 && steady[-1] == 7)
    }

    @Test("releaseMemory merges the pieces of a sorted set", arguments: [1, 2, 100, 7000])
    func sorted(left: Int) {
        var set = SortedSet(sorted: 0..<50_000)
        let kept = Set((0..<left).map { $0 * (50_000 / left) })
        for element in 0..<50_000 where !kept.contains(element) { set.remove(element) }
        set.releaseMemory()
        #expect(Array(set) == kept.sorted() && set.count == left)
        if case .pieces(let pieces) = set.storage { #expect(pieces.count <= left / 256 + 1) }
        #expect(set.insert(-1) && !set.insert(-1) && Array(set.prefix(2)) == [-1, 0])
    }

    @Test(
        "An index that releases memory keeps its observers in order, reports new positions, and remains usable",
        arguments: [0, 1, 40, 900])
    func index(left: Int) throws {
        var index = ObserverIndex<String, String, Int>()
        var positions: [Int: ObserverIndex<String, String, Int>.Position] = [:]
        // Names and objects in all four ways, of few and of many.
        func names(of number: Int) -> (name: String?, object: String?) {
            (number % 5 == 0 ? nil : "n\(number % 700)", number % 3 == 0 ? nil : "o\(number % 90)")
        }
        func insert(_ number: Int) {
            positions[number] = index.insert(number, name: names(of: number).name, object: names(of: number).object)
        }
        for number in 0..<3000 { insert(number) }
        // In an order that is none: 1,237 and 3,000 have no divisor in common.
        let mixed = (0..<3000).map { $0 * 1237 % 3000 }
        let kept = Set(mixed.prefix(left))
        for number in mixed.reversed() where !kept.contains(number) {
            index.remove(at: positions.removeValue(forKey: number)!)
        }
        let registered = index.orderOfNext
        index.releaseMemory { number, position in positions[number] = position }
        #expect(index.nodes.storage.count <= max(left, 64) && index.lists.storage.count <= 2 * left + 64)
        #expect(index.count == left && index.orderOfNext == registered)
        #expect(positions.count == left && positions.allSatisfy { index[$0.value] == $0.key })
        for number in 3000..<3100 { insert(number) }
        func expectMatches() {
            for probe in stride(from: 0, to: 3100, by: 37) {
                let (name, object) = ("n\(probe % 700)", "o\(probe % 90)")
                var found: [Int] = []
                index.forEachMatch(name: name, object: object) { found.append($0) }
                let expected = positions.keys.filter { number in
                    let wanted = names(of: number)
                    return (wanted.name ?? name) == name && (wanted.object ?? object) == object
                }
                #expect(found == expected.sorted())
            }
        }
        expectMatches()
        for number in positions.keys.sorted() where number % 7 < 3 {
            index.remove(at: positions.removeValue(forKey: number)!)
        }
        expectMatches()
    }
}
