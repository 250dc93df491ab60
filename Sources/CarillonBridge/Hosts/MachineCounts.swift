// SPDX-License-Identifier: Apache-2.0

/// How many entries of a table are of each machine: one has seven times what is left to others at most, however many users it
/// says that it has.
struct MachineCounts: Equatable {
    private let max: Int
    private var all = 0
    private var counts: [String: Int] = [:]

    /// - Parameter max: the maximum of all together.
    init(max: Int) {
        self.max = max
    }

    func hasRoom(for origin: Origin) -> Bool {
        all < max && counts[origin.host, default: 0] + 1 <= 7 * (max - all)
    }

    mutating func add(_ origin: Origin) {
        all += 1
        counts[origin.host, default: 0] += 1
    }

    /// - Parameter origin: one that was added.
    mutating func remove(_ origin: Origin) {
        all -= 1
        counts[origin.host]! -= 1
        if counts[origin.host] == 0 { counts[origin.host] = nil }
    }
}
