// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// Faults that a build for it has planted in the service, so that it can be seen whether they are found.
public enum PlantedFaults {
    // A simulation has one thread.
    nonisolated(unsafe) private static var chosen: String?

    #if CARILLON_PLANTED
        private static let all = PlantedFault.allCases.map(\.rawValue)
    #else
        /// None, in any build but that.
        private static let all: [String] = []
    #endif

    /// - Parameter isOfRealms: for those of the bridge, which realms find; otherwise for all others.
    public static func all(ofRealms isOfRealms: Bool) -> [String] {
        all.filter { $0.hasPrefix("bridge-") == isOfRealms }
    }

    /// From now on each run has it.
    ///
    /// - Returns: whether there is such a fault in this build.
    public static func plant(_ name: String) -> Bool {
        guard all.contains(name) else { return false }
        chosen = name
        return true
    }

    /// At the beginning of a run: the same run has it at the same places.
    static func sow() {
        #if CARILLON_PLANTED
            let fault = chosen.flatMap(PlantedFault.init(rawValue:))
            PlantedFault.plant(fault)
            Connection.plantAnySender(fault == .unverifiedSender)
        #endif
    }
}
