// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// The writing of results to standard output. Each line is written at once, without a buffer, and a failure is
/// reported.
enum Output {
    /// Writes a line. A failure is reported on standard error; the command then ends with ``ExitCode/outputFailed``.
    ///
    /// - Returns: whether the line was written.
    static func write(_ line: String) -> Bool {
        do throws(StreamError) {
            try writeLine(line)
            return true
        } catch {
            printError("carillon: standard output: \(error)")
            return false
        }
    }

    /// Writes the version, the only output of a run with `--version`.
    static func writeVersion() -> ExitCode {
        write("carillon \(Wire.softwareVersion)") ? .done : .outputFailed
    }
}
