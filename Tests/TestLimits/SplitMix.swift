// SPDX-License-Identifier: Apache-2.0
import Glibc

/// A generator whose numbers come again with the same seed (SplitMix64).
public struct SplitMix: RandomNumberGenerator {
    private var state: UInt64

    public init(state: UInt64) {
        self.state = state
    }

    /// That of a random test: with the seed that the environment variable `CARILLON_SEED` names, or else with one that no
    /// run had before. It is printed, so that a failure can be had again.
    ///
    /// - Parameters:
    ///   - test: names it in what is printed.
    ///   - standard: where each run shall have the same, as the test takes what is rare for granted.
    public static func ofTest(_ test: String, standard: UInt64? = nil) -> SplitMix {
        let named = getenv("CARILLON_SEED").flatMap { UInt64(String(cString: $0)) }
        let seed = named ?? standard ?? .random(in: 0..<UInt64.max / 2)
        // At once, as what follows may end the process.
        let line = "seed of \(test): \(seed) (CARILLON_SEED=\(seed) has it again)\n"
        _ = write(STDERR_FILENO, line, line.utf8.count)
        return SplitMix(state: seed)
    }

    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
