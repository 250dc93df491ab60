// SPDX-License-Identifier: Apache-2.0

/// A configuration that several files define together, each in groups and keys.
package protocol KeyFileConfiguration {
    /// The configuration of a machine without files.
    static var standard: Self { get }

    /// The path of its file below each configuration directory.
    static var path: String { get }

    /// Applies an entry.
    ///
    /// - Throws: the fault in the entry.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault)

    /// Applies the entries of a file with a fault that can only restrict (E9).
    mutating func restrict(by file: KeyFile)
}

/// The content of the configuration files, file by file (E9).
package struct KeyFileReading<Configuration: KeyFileConfiguration> {
    /// All entries of the files without a fault, and the restricting entries of the other files.
    package var configuration: Configuration
    /// The files that exist, the least important first.
    package private(set) var files: [String] = []
    /// The faults: unknown groups or keys, values that are not allowed, files that can't be read.
    package private(set) var faults: [KeyFile.Fault] = []

    /// Creates the configuration of a machine without files.
    package init(_ configuration: Configuration = .standard) { self.configuration = configuration }

    /// Reads the files that exist among these paths.
    ///
    /// - Parameter paths: the paths, the least important first.
    package init(paths: [String]) {
        self.init()
        for path in paths {
            if let file = KeyFile(readableOf: path) { add(file) }
        }
    }

    /// Reads the files in configuration directories.
    ///
    /// - Parameter directories: the directories; the user's own is first.
    package init(directories: [String]) {
        self.init(paths: directories.reversed().map { "\($0)/\(Configuration.path)" })
    }

    /// Reads the files of the XDG configuration directories.
    package static func ofMachine() -> KeyFileReading { KeyFileReading(directories: configurationDirectories()) }

    /// Creates the content of a single file, for a simulation.
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
                // Every line of an unknown group would cause the same fault.
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
