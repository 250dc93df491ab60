// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The holder of the configuration in force, which reads the files at the start and at each reload.
///
/// At the start, a file with a fault is applied only as far as it restricts, and the service runs (E9). At a reload,
/// any fault keeps the old configuration.
final class ConfigurationKeeper {
    /// The configuration in force.
    private(set) var current = Configuration.standard
    /// The paths of the files that existed at the last reading.
    private(set) var files: [String] = []
    /// The faults that the last reading found.
    private(set) var faults: [KeyFile.Fault] = []
    /// Called after each successful reload, with the previous configuration.
    var onRead: ((_ before: Configuration) -> Void)?
    private let readFiles: () -> Configuration.Reading

    init(reading readFiles: @escaping () -> Configuration.Reading) {
        self.readFiles = readFiles
    }

    /// Reads the files for the first time. Files with a fault are applied only as far as they restrict.
    func begin() {
        current = readAndLog(saying: "configuration refused").configuration
    }

    /// Reads the files again. If one has a fault, the old configuration stays.
    ///
    /// - Throws: the first fault, with file and line. All faults are logged, unless they are the same as at the last
    ///   reading.
    func read() throws(KeyFile.Fault) {
        let reading = readAndLog(saying: "configuration refused, the present one stays in force")
        guard let first = faults.first else {
            let before = current
            current = reading.configuration
            onRead?(before)
            return
        }
        throw first
    }

    /// Reads the files, stores their paths and faults, and logs new faults after `words`.
    private func readAndLog(saying words: String) -> Configuration.Reading {
        let reading = readFiles()
        if reading.faults != faults {
            for fault in reading.faults { Log.warning("\(words): \(fault)", ["CARILLON_REASON": fault.reason]) }
        }
        (files, faults) = (reading.files, reading.faults)
        return reading
    }
}
