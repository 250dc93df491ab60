// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The output of a program that was asked to check its configuration.
package struct ConfigurationReport {
    private let files: [String]
    private let faults: [KeyFile.Fault]
    private let missing: [String]
    private let none: String
    private let mistakes: [String]
    private let warnings: [String]

    /// - Parameters:
    ///   - files: those that were read.
    ///   - faults: what is wrong with them.
    ///   - named: the files that somebody asked for, which have to exist.
    ///   - none: the line for a machine without files.
    ///   - mistakes: what else is wrong, of the files that these name.
    ///   - warnings: what will be, or may be.
    package init(
        files: [String], faults: [KeyFile.Fault], named: [String], none: String, mistakes: [String] = [],
        warnings: [String] = []
    ) {
        (self.files, self.faults, self.none) = (files, faults, none)
        (self.mistakes, self.warnings) = (mistakes, warnings)
        missing = named.filter { !files.contains($0) }
    }

    /// Writes a line for each file without a mistake to standard output, unless something is wrong with the files that they
    /// name, and one for each mistake to standard error, and ends the process: with 1 where there is a mistake, else as
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
