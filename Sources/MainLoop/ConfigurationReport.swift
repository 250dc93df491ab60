// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The output of `--check` of the service and the bridge: the faults in the configuration files, and an exit
/// status.
package struct ConfigurationReport {
    private let files: [String]
    private let faults: [KeyFile.Fault]
    private let missing: [String]
    private let none: String
    private let mistakes: [String]
    private let warnings: [String]

    /// - Parameters:
    ///   - files: the files that were read.
    ///   - faults: the faults in these files.
    ///   - named: the files that the user named, which must exist.
    ///   - none: the output line when no file exists.
    ///   - mistakes: lines about errors outside of `faults`, for example in files to which the configuration refers.
    ///     They make the configuration wrong, as faults do, and have no line number in a configuration file.
    ///   - warnings: lines about problems that do not make the configuration wrong.
    package init(
        files: [String], faults: [KeyFile.Fault], named: [String], none: String, mistakes: [String] = [],
        warnings: [String] = []
    ) {
        (self.files, self.faults, self.none) = (files, faults, none)
        (self.mistakes, self.warnings) = (mistakes, warnings)
        missing = named.filter { !files.contains($0) }
    }

    /// Writes the report and ends the process. Standard output gets a line for each file without a fault; if `mistakes`
    /// has entries, no file counts as faultless. Standard error gets a line for each fault, missing file, mistake and
    /// warning. The exit status is 1 if there is one of these other than a warning. Otherwise it is that of
    /// ``CommandLineParser/end(writing:)``.
    package func end() -> Never {
        let faulty = Set(faults.map(\.path))
        var lines = mistakes.isEmpty ? files.filter { !faulty.contains($0) }.map { "\($0): no mistakes" } : []
        if files.isEmpty, missing.isEmpty { lines.append(none) }
        for fault in faults { printError("\(fault)") }
        for path in missing { printError("\(path): there is no such file") }
        for text in mistakes + warnings.map({ "warning: \($0)" }) { printError(text) }
        guard faults.isEmpty, missing.isEmpty, mistakes.isEmpty else {
            lines.forEach(printLine)
            exit(1)
        }
        CommandLineParser.end(writing: lines.joined(separator: "\n"))
    }
}
