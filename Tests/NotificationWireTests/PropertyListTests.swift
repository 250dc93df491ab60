// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Testing

@Suite("N3: property lists", .limited)
struct PropertyListTests {
    @Test("N3: values of different types are not equal")
    func kinds() {
        let values: [PropertyList] = [
            .string("1"), .boolean(true), .uint8(1), .int16(1), .uint16(1), .int32(1), .uint32(1), .int64(1),
            .uint64(1),
            .double(1), .data([1]), .date(microsecondsSince1970: 1), .array([.int64(1)]), .dictionary(["1": .int64(1)]),
        ]
        #expect(Set(values).count == values.count)
        for (left, first) in values.enumerated() {
            for (right, second) in values.enumerated() { #expect((first == second) == (left == right)) }
        }
    }

    @Test("N3: collections are equal by their contents")
    func collections() {
        #expect(PropertyList.array([.int64(1), .string("a")]) == .array([.int64(1), .string("a")]))
        #expect(PropertyList.array([.int64(1), .string("a")]) != .array([.string("a"), .int64(1)]))
        #expect(
            PropertyList.dictionary(["a": .int64(1), "b": .data([])])
                == .dictionary(["b": .data([]), "a": .int64(1)]))
        #expect(PropertyList.array([]) != .data([]))
        #expect(PropertyList.double(0) == .double(-0.0))
    }
}
