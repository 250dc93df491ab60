// SPDX-License-Identifier: Apache-2.0

/// A configuration that several key files define together. The service's and the bridge's configuration conform.
package protocol KeyFileConfiguration {
    /// The default configuration, for a machine without configuration files.
    static var standard: Self { get }

    /// The path of the file, relative to each configuration directory.
    static var path: String { get }

    /// Applies an entry.
    ///
    /// - Throws: the fault in the entry.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault)

    /// Applies a file that has a fault only so far as it restricts, for example lowers a limit (E9). A mistake thus
    /// never permits more than the administrator intended.
    mutating func restrict(by file: KeyFile)
}

/// The configuration read from all its files, with the faults of each file (E9). A later file overrides an earlier one.
///
/// A file without faults applies as a whole. A file with a fault can only restrict
/// (``KeyFileConfiguration/restrict(by:)``).
package struct KeyFileReading<Configuration: KeyFileConfiguration> {
    /// The resulting configuration.
    package var configuration: Configuration
    /// The paths of the files that exist, in the order in which they apply.
    package private(set) var files: [String] = []
    /// The faults: unknown groups or keys, values that are not allowed, files that can't be read.
    package private(set) var faults: [KeyFile.Fault] = []

    /// Creates the result for a machine without files: the configuration as given.
    package init(_ configuration: Configuration = .standard) { self.configuration = configuration }

    /// Reads the files that exist among these paths.
    ///
    /// - Parameter paths: the paths in the order in which they apply; the last file overrides the others.
    package init(paths: [String]) {
        self.init()
        for path in paths {
            if let file = KeyFile(readableOf: path) { add(file) }
        }
    }

    /// Reads the files in configuration directories.
    ///
    /// - Parameter directories: the directories; the user's own is first, and overrides the others.
    package init(directories: [String]) {
        self.init(paths: directories.reversed().map { "\($0)/\(Configuration.path)" })
    }

    /// Reads the files of the XDG configuration directories.
    package static func ofMachine() -> KeyFileReading { KeyFileReading(directories: configurationDirectories()) }

    /// Reads a single file from its text, for a simulation.
    package init(text: String, path: String = "carillon.conf") {
        self.init()
        add(KeyFile(readableOf: Array(text.utf8), path: path))
    }

    private mutating func add(_ file: KeyFile) {
        files.append(file.path)
        // A copy takes the entries, and is dropped if the file has a fault.
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
