// SPDX-License-Identifier: Apache-2.0
/// Numbers that a seed decides (SplitMix64): the same in every process, on every machine.
public struct Random: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(seed: UInt64) {
        state = seed
    }

    /// One of several of the same seed, which do not depend on how much of the others was used.
    public init(seed: UInt64, stream: UInt64) {
        var mixer = Random(seed: seed &+ stream &* 0xd134_2543_de82_ef95)
        state = mixer.next()
    }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }

    mutating func number(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + Int(next() % UInt64(range.count))
    }

    /// Whether something happens that does so in `share` of all cases, from 0 to 1.
    mutating func happens(_ share: Double) -> Bool {
        Double(next() >> 11) * 0x1p-53 < share
    }

    mutating func pick<Element>(_ elements: [Element]) -> Element {
        elements[Int(next() % UInt64(elements.count))]
    }
}
