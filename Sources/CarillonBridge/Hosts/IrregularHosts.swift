// SPDX-License-Identifier: Apache-2.0

/// The hosts under whose names plain MQTT clients publish values on topics that no bridge would use. The topics of such
/// values can't be derived from name and object, so ``ValueAudit`` leaves these hosts out.
struct IrregularHosts: Equatable {
    /// The hosts.
    private(set) var origins: Set<Origin> = []
    /// The quota of each machine in `origins`.
    private var machines = MachineCounts(max: 4_096)

    /// Inserts a host, if the limit allows it. Otherwise the audit may end values of the host that exist.
    mutating func insert(_ origin: Origin) {
        guard !origins.contains(origin), machines.hasSpace(for: origin) else { return }
        origins.insert(origin)
        machines.add(origin)
    }

    mutating func remove(_ origin: Origin) { if origins.remove(origin) != nil { machines.remove(origin) } }

    func contains(_ origin: Origin) -> Bool { origins.contains(origin) }
}
