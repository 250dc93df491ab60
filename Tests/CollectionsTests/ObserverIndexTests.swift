// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCollections

@Suite("C11: the index of observers", .limited)
struct ObserverIndexTests {
    /// The index, which can't be copied, where the macros of tests can look at it.
    private final class Index {
        typealias Position = ObserverIndex<String, String, Int>.Position
        private var index = ObserverIndex<String, String, Int>()

        /// The names that it knows, also those without observers.
        var nameCount: Int { index.named.count }
        static var maxUnusedNames: Int { ObserverIndex<String, String, Int>.maxUnusedNames }

        var count: Int { index.count }
        subscript(position: Position) -> Int { index[position] }
        func insert(_ observer: Int, name: String?, object: String?) -> Position {
            index.insert(observer, name: name, object: object)
        }
        @discardableResult
        func remove(at position: Position) -> Int { index.remove(at: position) }
        func sort(by order: (Int) -> UInt64) { index.sort(by: order) }
        func matches(_ name: String, _ object: String?) -> [Int] {
            var numbers: [Int] = []
            index.forEachMatch(name: name, object: object) { numbers.append($0) }
            return numbers
        }
    }

    /// The registrations of table C1, by number: (name, object).
    private static let registrations: [(name: String?, object: String?)] = [
        ("Ding", "bell"), ("Ding", nil), (nil, "bell"), (nil, nil),
        ("Dong", "bell"), ("Ding", "gong"), ("Dong", nil), (nil, "gong"),
    ]

    @Test(
        "C1: the index finds the observers of a name, an object, both or neither",
        arguments: [
            ("Ding", "bell", [0, 1, 2, 3]), ("Ding", nil, [1, 3]), ("Ding", "gong", [1, 3, 5, 7]),
            ("Ding", "other", [1, 3]), ("Dong", "bell", [2, 3, 4, 6]), ("Dong", "gong", [3, 6, 7]),
            ("Dong", nil, [3, 6]), ("Dang", "bell", [2, 3]), ("Dang", nil, [3]), ("ding", nil, [3]),
        ] as [(String, String?, [Int])])
    func table(name: String, object: String?, receivers: [Int]) {
        let index = Index()
        for (number, registration) in Self.registrations.enumerated() {
            _ = index.insert(number, name: registration.name, object: registration.object)
        }
        #expect(matches(index, name, object) == receivers)
    }

    @Test("C3: sorting reorders every list of the index, and later insertions and removals keep the new order")
    func sort() {
        let index = Index()
        var positions: [Int: Index.Position] = [:]
        for number in [7, 2, 5, 1, 6, 3, 0, 4] {
            let registration = Self.registrations[number]
            positions[number] = index.insert(number, name: registration.name, object: registration.object)
            _ = index.insert(10 + number, name: registration.name, object: registration.object)
        }
        index.remove(at: positions[1]!)
        index.sort { UInt64($0) }
        #expect(matches(index, "Ding", "bell") == [0, 2, 3, 10, 11, 12, 13])
        #expect(matches(index, "Dong", "gong") == [3, 6, 7, 13, 16, 17])
        _ = index.insert(18, name: nil, object: nil)
        index.remove(at: positions[3]!)
        #expect(matches(index, "Ding", nil) == [11, 13, 18] && index[positions[7]!] == 7)
    }

    @Test("C1: an empty name or object is an ordinary text in the index, not a wildcard")
    func emptyTexts() {
        let index = Index()
        _ = index.insert(1, name: "", object: "")
        _ = index.insert(2, name: nil, object: nil)
        #expect(matches(index, "", "") == [1, 2])
        #expect(matches(index, "Ding", "") == [2])
        #expect(matches(index, "", nil) == [2])
    }

    @Test("C3: observers of one post come in registration order, across all four kinds")
    func order() {
        let kinds: [(name: String?, object: String?)] = [("Ding", "bell"), ("Ding", nil), (nil, "bell"), (nil, nil)]
        // Every order of the four kinds, twice over.
        for permutation in permutations([0, 1, 2, 3]) {
            let index = Index()
            for (number, kind) in (permutation + permutation.reversed()).enumerated() {
                _ = index.insert(number, name: kinds[kind].name, object: kinds[kind].object)
            }
            #expect(matches(index, "Ding", "bell") == Array(0..<8), "\(permutation)")
        }
    }

    @Test("Removal takes out one observer and leaves the order of the others", arguments: 0..<8)
    func removal(removed: Int) {
        let index = Index()
        let positions = (0..<8).map { number in
            index.insert(number, name: number % 2 == 0 ? "Ding" : nil, object: number % 4 < 2 ? "bell" : nil)
        }
        #expect(index.remove(at: positions[removed]) == removed)
        #expect(index.count == 7)
        #expect(matches(index, "Ding", "bell") == (0..<8).filter { $0 != removed })
        for (number, position) in positions.enumerated() where number != removed {
            #expect(index[position] == number)
        }
    }

    @Test("All observers can be removed in any order, and the index can be filled again", arguments: [false, true])
    func removeAll(backwards: Bool) {
        let index = Index()
        for _ in 0..<3 {
            let positions = (0..<100).map { number in
                index.insert(
                    number, name: number % 3 == 0 ? nil : "name\(number % 7)",
                    object: number % 5 == 0 ? nil : "object\(number % 11)")
            }
            #expect(index.count == 100)
            for position in backwards ? positions.reversed() : positions { index.remove(at: position) }
            #expect(index.count == 0)
            #expect(matches(index, "name1", "object1").isEmpty)
        }
    }

    @Test("C3: a new observer in a reused slot comes after older observers")
    func reusedSlots() {
        let index = Index()
        let first = index.insert(0, name: "Ding", object: nil)
        _ = index.insert(1, name: nil, object: nil)
        let third = index.insert(2, name: "Ding", object: "bell")
        _ = index.insert(3, name: nil, object: "bell")
        index.remove(at: first)
        index.remove(at: third)
        _ = index.insert(4, name: nil, object: nil)
        _ = index.insert(5, name: "Ding", object: "bell")
        #expect(matches(index, "Ding", "bell") == [1, 3, 4, 5])
    }

    @Test("C10: an observer that is registered twice is found twice")
    func twice() {
        let index = Index()
        let first = index.insert(7, name: "Ding", object: nil)
        _ = index.insert(7, name: "Ding", object: nil)
        #expect(matches(index, "Ding", nil) == [7, 7])
        index.remove(at: first)
        #expect(matches(index, "Ding", nil) == [7])
    }

    @Test("A removed observer is released")
    func released() {
        final class Mark {}
        var index = ObserverIndex<String, String, Mark>()
        weak var watched: Mark?
        var position: ObserverIndex<String, String, Mark>.Position?
        do {
            let mark = Mark()
            watched = mark
            position = index.insert(mark, name: "Ding", object: nil)
        }
        #expect(watched != nil)
        if let position { index.remove(at: position) }
        #expect(watched == nil)
    }

    @Test("C11: the index keeps a bounded number of names without observers, also of names that are used again")
    func unusedNames() {
        let index = Index()
        for number in 0..<50 {
            index.remove(at: index.insert(1, name: "name\(number)", object: nil))
            let again = index.insert(2, name: "name\(number)", object: nil)
            // More than are kept without observers.
            for other in 0...Index.maxUnusedNames {
                index.remove(at: index.insert(3, name: "other\(other)", object: nil))
            }
            #expect(matches(index, "name\(number)", nil) == [2])
            index.remove(at: again)
            #expect(index.nameCount <= Index.maxUnusedNames)
        }
    }

    // MARK: Against a model

    @Test(
        "C1, C3, C11: the index agrees with a plain list over thousands of random steps",
        arguments: [1, 2, 3, 0xBE11] as [UInt64],
        [4, 60])
    func random(seed: UInt64, names: Int) {
        struct Entry {
            let number: Int
            let name: String?
            let object: String?
            let position: Index.Position
        }
        var generator = SplitMix(state: seed)
        let index = Index()
        var model: [Entry] = []
        func pick(_ prefix: String, _ count: Int, orNone: Bool) -> String? {
            let number = Int.random(in: orNone ? -2..<count : 0..<count, using: &generator)
            return number < 0 ? nil : "\(prefix)\(number)"
        }
        for step in 0..<5000 {
            // Phases that grow and phases that shrink, so that slots are used again.
            let growth = (step / 500) % 2 == 0 ? 0.6 : 0.3
            let choice = Double.random(in: 0..<1, using: &generator)
            if choice < growth {
                let (name, object) = (pick("name", names, orNone: true), pick("object", 4, orNone: true))
                let position = index.insert(step, name: name, object: object)
                model.append(Entry(number: step, name: name, object: object, position: position))
            } else if choice < 0.8, let chosen = model.indices.randomElement(using: &generator) {
                let entry = model.remove(at: chosen)
                #expect(index.remove(at: entry.position) == entry.number, "seed \(seed), step \(step)")
            } else {
                let name = pick("name", names, orNone: false)!
                let object = pick("object", 4, orNone: true)
                let expected = model.filter { entry in
                    (entry.name == nil || entry.name == name) && (entry.object == nil || entry.object == object)
                }
                #expect(matches(index, name, object) == expected.map(\.number), "seed \(seed), step \(step)")
            }
            #expect(index.count == model.count, "seed \(seed), step \(step)")
        }
        for entry in model { #expect(index[entry.position] == entry.number) }
    }

    // MARK: -

    private func matches(_ index: Index, _ name: String, _ object: String?) -> [Int] { index.matches(name, object) }

    private func permutations(_ elements: [Int]) -> [[Int]] {
        guard elements.count > 1 else { return [elements] }
        return elements.flatMap { first in permutations(elements.filter { $0 != first }).map { [first] + $0 } }
    }
}
