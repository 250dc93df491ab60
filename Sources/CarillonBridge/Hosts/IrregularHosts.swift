// SPDX-License-Identifier: Apache-2.0

/// Hosts under whose names plain clients publish values on other topics than a bridge does, so that nobody can tell from its
/// name and object on which topic a value is.
struct IrregularHosts: Equatable {
    private(set) var origins: Set<Origin> = []
    private var machines = MachineCounts(max: 4_096)

    /// Of one for which there is no room values may end that are there.
    mutating func insert(_ origin: Origin) {
        guard !origins.contains(origin), machines.hasRoom(for: origin) else { return }
        origins.insert(origin)
        machines.add(origin)
    }

    mutating func remove(_ origin: Origin) { if origins.remove(origin) != nil { machines.remove(origin) } }

    func contains(_ origin: Origin) -> Bool { origins.contains(origin) }
}
