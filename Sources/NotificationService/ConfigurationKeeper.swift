// SPDX-License-Identifier: Apache-2.0
import MainLoop

/// What the configuration files said last, and who has to know when they are read again.
final class ConfigurationKeeper {
    private(set) var current = Configuration.standard
    /// Called after each reading without a fault, with what was in force before.
    var onRead: ((_ before: Configuration) -> Void)?
    private let readFiles: () throws(KeyFile.Fault) -> Configuration

    init(reading readFiles: @escaping () throws(KeyFile.Fault) -> Configuration) {
        self.readFiles = readFiles
    }

    /// Reads the files. With a fault in one of them, everything stays as it was.
    ///
    /// - Throws: the fault, with file and line. It has been logged.
    func read() throws(KeyFile.Fault) {
        do throws(KeyFile.Fault) {
            let before = current
            current = try readFiles()
            onRead?(before)
        } catch {
            Log.warning("configuration refused, the old one stays: \(error)", ["CARILLON_REASON": error.reason])
            throw error
        }
    }
}
