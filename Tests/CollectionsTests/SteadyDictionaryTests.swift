// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCollections

@Suite("Dictionary that grows part by part", .limited)
struct SteadyDictionaryTests {
    @Test(
        "A SteadyDictionary has the contents of a Dictionary, with few elements and with many",
        arguments: [0, 1, 2048, 2049, 20_000])
    func contents(_ count: Int) {
        var (steady, plain) = (SteadyDictionary<Int, Int>(), [Int: Int]())
        func check() {
            #expect(steady.count == plain.count && steady.isEmpty == plain.isEmpty)
            #expect(plain.allSatisfy { steady[$0.key] == $0.value })
            #expect(Dictionary(uniqueKeysWithValues: steady.entries.map { ($0.key, $0.value) }) == plain)
            #expect(steady.values.sorted() == plain.values.sorted())
        }
        for key in 0..<count { (steady[key], plain[key]) = (key * 2, key * 2) }
        check()
        for key in stride(from: 0, to: count, by: 3) {
            steady[key, default: 7] += 1
            plain[key, default: 7] += 1
            steady[-key - 1, default: 7] += 1
            plain[-key - 1, default: 7] += 1
        }
        check()
        for key in stride(from: 0, to: count, by: 2) {
            #expect(steady.removeValue(forKey: key) == plain.removeValue(forKey: key))
            steady[key + 1] = nil
            plain[key + 1] = nil
        }
        #expect(steady.removeValue(forKey: count + 10) == nil)
        check()
        for key in plain.keys { steady[key] = nil }
        #expect(steady.isEmpty && steady.parts.isEmpty, "an empty one has no parts")
    }

    @Test("Every part of a growing dictionary remains small") func parts() {
        var steady = SteadyDictionary<Int, Int>()
        for key in 0..<100_000 { steady[key] = key }
        #expect(steady.parts.count == SteadyDictionary<Int, Int>.partCount)
        #expect(steady.parts.allSatisfy { $0.count < 1200 }, "each part has about as many as the others")
        steady.removeAll()
        #expect(steady.isEmpty && steady.entries.allSatisfy { _ in false })
    }

    @Test("Dictionaries with equal entries are equal, with or without parts") func equality() {
        var (left, right) = (SteadyDictionary<Int, Int>(), SteadyDictionary<Int, Int>())
        for key in 0..<3000 { left[key] = key }
        for key in 2000..<3000 { left[key] = nil }
        for key in 0..<2000 { right[key] = key }
        #expect(left == right && left.parts.isEmpty != right.parts.isEmpty)
        right[5] = 6
        #expect(left != right)
    }
}
