// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

@Suite("S4: sets of observers with losses", .limited)
struct ObserverSetTests {
    private func list(_ numbers: some Sequence<Int>) -> ObserverList {
        ObserverList(numbers.map { ObserverID(rawValue: UInt64($0)) })
    }

    @Test("A set of observers has each observer once, sorted by number, in any order of insertion")
    func union() {
        var random = SplitMix(state: 7)
        for _ in 0..<500 {
            var (set, model): (ObserverSet, Set<ObserverID>) = ([], [])
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                let added = list(
                    (0..<Int.random(in: 1...60, using: &random)).map { _ in
                        Int.random(in: 0..<Int.random(in: 1...90, using: &random), using: &random)
                    })
                for _ in 0..<Int.random(in: 1...2, using: &random) { _ = set.formUnion(added) }
                model.formUnion(added.ids)
                #expect(set.ids == model.sorted())
            }
            #expect(set == ObserverSet(model) && ObserverSet(model.shuffled(using: &random)).ids == set.ids)
        }
    }

    @Test("The positions of wanted observers in a sorted list are found in few steps, whichever list is longer")
    func places() {
        var random = SplitMix(state: 8)
        func sorted(_ most: Int) -> [ObserverID] {
            let range = 0..<Int.random(in: 1...200, using: &random)
            let numbers = (0..<Int.random(in: 0...most, using: &random)).map { _ in
                Int.random(in: range, using: &random)
            }
            return Set(numbers).sorted().map { ObserverID(rawValue: UInt64($0)) }
        }
        for round in 0..<2000 {
            let (wanted, list) = (sorted(round % 3 == 0 ? 3 : 90), sorted(round % 2 == 0 ? 3 : 90))
            let places = wanted.places(in: list) { $0 }.places
            #expect(places == list.indices.filter { wanted.contains(list[$0]) })
            var rest = list
            rest.remove(at: places)
            #expect(rest == list.filter { !wanted.contains($0) })
        }
        let many = (0..<16_384).map { ObserverID(rawValue: UInt64($0)) }
        #expect(many.places(in: [many[0], many[16_383]]) { $0 }.steps < 10)
        #expect([many[0], many[16_383]].places(in: many) { $0 }.steps < 10)
    }

    @Test("E8: adding an equal list again to a set of observers costs far fewer steps than the first time")
    func again() {
        var set = ObserverSet()
        let all = list(0..<16_384)
        #expect(set.formUnion(all) == 32_768)
        for _ in 0..<3 { #expect(set.formUnion(all) == 2048) }
        for _ in 0..<3 {
            #expect(set.formUnion(list([3])) == 2)
            #expect(set.formUnion(list([4, 7])) == 4 && set.formUnion(list([5, 6, 9])) == 6)
            #expect(set.formUnion(list(0..<900)) <= 1800)
            _ = set.formUnion(all)
        }
        #expect(set.formUnion(all) == 2048)
        #expect(set.count == 16_384 && set.formUnion(list([20_000, 20_001])) == 8 && set.count == 16_386)
        #expect(set.formUnion(list(30_000..<31_000)) < 20_000 && set.count == 17_386)
    }
}
