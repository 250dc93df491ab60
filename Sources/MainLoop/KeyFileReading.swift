// SPDX-License-Identifier: Apache-2.0

/// A configuration that several files say together, each in groups and keys.
package protocol KeyFileConfiguration {
    /// That of a machine without files.
    static var standard: Self { get }

    /// Where its file is below each directory of configuration.
    static var path: String { get }

    /// Takes an entry.
    ///
    /// - Throws: what is wrong with it.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault)

    /// Takes from a file with a fault the entries that can only restrict (E9).
    mutating func restrict(by file: KeyFile)
}

/// The content of the configuration files, file by file (E9).
package struct KeyFileReading<Configuration: KeyFileConfiguration> {
    /// Of each file without a fault all; of the others what can only restrict.
    package var configuration: Configuration
    /// The files that exist, the least important first.
    package private(set) var files: [String] = []
    /// A group or key that does not exist, a value that is not allowed, a file that can't be read.
    package private(set) var faults: [KeyFile.Fault] = []

    /// Without files.
    package init(_ configuration: Configuration = .standard) { self.configuration = configuration }

    /// Reads those of these files that exist.
    ///
    /// - Parameter paths: the least important first.
    package init(paths: [String]) {
        self.init()
        for path in paths {
            if let file = KeyFile(readableOf: path) { add(file) }
        }
    }

    /// Reads the files in directories of configuration.
    ///
    /// - Parameter directories: the user's own comes first.
    package init(directories: [String]) {
        self.init(paths: directories.reversed().map { "\($0)/\(Configuration.path)" })
    }

    /// Reads the files of the XDG configuration directories.
    package static func ofMachine() -> KeyFileReading { KeyFileReading(directories: configurationDirectories()) }

    /// The content of a single file, for a simulation.
    package init(text: String, path: String = "carillon.conf") {
        self.init()
        add(KeyFile(readableOf: Array(text.utf8), path: path))
    }

    private mutating func add(_ file: KeyFile) {
        files.append(file.path)
        var (next, faults) = (configuration, file.faults)
        for entry in file.entries where !entry.key.isEmpty {
            do throws(KeyFile.Fault) {
                try next.apply(entry, of: file)
            } catch {
                // Of a group that does not exist each line would say the same.
                if !faults.contains(where: { $0.reason == error.reason }) { faults.append(error) }
            }
        }
        if faults.isEmpty {
            configuration = next
        } else {
            configuration.restrict(by: file)
            self.faults += faults.sorted { $0.line ?? 0 < $1.line ?? 0 }.prefix(KeyFile.maxFaults)
        }
    }
}
