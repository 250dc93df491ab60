// SPDX-License-Identifier: Apache-2.0

/// The quotas of machines in a bounded table of hosts. A machine may have at most seven times the number of free
/// entries, however many users it claims, so that space remains for other machines.
struct MachineCounts: Equatable {
    /// The maximum number of all entries.
    private let max: Int
    /// The number of entries.
    private var all = 0
    /// The number of entries of each machine.
    private var counts: [String: Int] = [:]

    /// - Parameter max: the maximum number of all entries.
    init(max: Int) {
        self.max = max
    }

    /// Whether another host of this machine may be added.
    func hasSpace(for origin: Origin) -> Bool {
        all < max && counts[origin.host, default: 0] + 1 <= 7 * (max - all)
    }

    /// Counts a host that was added.
    mutating func add(_ origin: Origin) {
        all += 1
        counts[origin.host, default: 0] += 1
    }

    /// Counts a host that was removed.
    ///
    /// - Parameter origin: a host that was added before.
    mutating func remove(_ origin: Origin) {
        all -= 1
        counts[origin.host]! -= 1
        if counts[origin.host] == 0 { counts[origin.host] = nil }
    }
}
