// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The configuration in force, and the handler that is called when the files are read again.
final class ConfigurationKeeper {
    private(set) var current = Configuration.standard
    /// The files that existed at the last reading, and their faults.
    private(set) var files: [String] = []
    private(set) var faults: [KeyFile.Fault] = []
    /// Called after each reading without a fault except the first, with the configuration that was in force before.
    var onRead: ((_ before: Configuration) -> Void)?
    private let readFiles: () -> Configuration.Reading

    init(reading readFiles: @escaping () -> Configuration.Reading) {
        self.readFiles = readFiles
    }

    /// Reads the files for the first time: the parts without a fault are in force, file by file (E9).
    func begin() {
        current = take(saying: "configuration refused").configuration
    }

    /// Reads the files again. With a fault in one of them, everything stays as it was.
    ///
    /// - Throws: the first fault, with file and line. All have been logged, the same ones once.
    func read() throws(KeyFile.Fault) {
        let reading = take(saying: "configuration refused, the present one stays in force")
        guard let first = faults.first else {
            let before = current
            current = reading.configuration
            onRead?(before)
            return
        }
        throw first
    }

    private func take(saying words: String) -> Configuration.Reading {
        let reading = readFiles()
        if reading.faults != faults {
            for fault in reading.faults { Log.warning("\(words): \(fault)", ["CARILLON_REASON": fault.reason]) }
        }
        (files, faults) = (reading.files, reading.faults)
        return reading
    }
}
