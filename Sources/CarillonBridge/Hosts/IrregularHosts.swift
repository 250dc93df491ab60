// SPDX-License-Identifier: Apache-2.0

/// The hosts under whose names plain clients publish values on topics that no bridge uses. The topics of their values
/// can't be derived from name and object.
struct IrregularHosts: Equatable {
    private(set) var origins: Set<Origin> = []
    private var machines = MachineCounts(max: 4_096)

    /// Inserts a host. If there is no space for it, existing values of the host may end.
    mutating func insert(_ origin: Origin) {
        guard !origins.contains(origin), machines.hasRoom(for: origin) else { return }
        origins.insert(origin)
        machines.add(origin)
    }

    mutating func remove(_ origin: Origin) { if origins.remove(origin) != nil { machines.remove(origin) } }

    func contains(_ origin: Origin) -> Bool { origins.contains(origin) }
}
