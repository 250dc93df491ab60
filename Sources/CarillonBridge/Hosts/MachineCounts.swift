// SPDX-License-Identifier: Apache-2.0

/// The number of entries that each machine has in a table. A machine may have at most seven times the free entries,
/// regardless of the number of users that it claims.
struct MachineCounts: Equatable {
    private let max: Int
    private var all = 0
    private var counts: [String: Int] = [:]

    /// - Parameter max: the maximum number of all entries.
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

    /// - Parameter origin: an origin that was added.
    mutating func remove(_ origin: Origin) {
        all -= 1
        counts[origin.host]! -= 1
        if counts[origin.host] == 0 { counts[origin.host] = nil }
    }
}
