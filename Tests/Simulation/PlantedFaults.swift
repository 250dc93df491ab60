// SPDX-License-Identifier: Apache-2.0
import DBus
import NotificationCore

/// Faults that a build for it has planted in the service, so that it can be seen whether they are found.
public enum PlantedFaults {
    // A simulation has one thread.
    nonisolated(unsafe) private static var chosen: String?

    #if CARILLON_PLANTED
        public static let all = PlantedFault.allCases.map(\.rawValue)
    #else
        /// None, in any build but that.
        public static let all: [String] = []
    #endif

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
            Connection.plantBelief(fault == .strangerBelieved)
        #endif
    }
}
