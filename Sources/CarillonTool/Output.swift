// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// What the command prints for its caller: on standard output, at once, and never lost silently.
enum Output {
    /// Writes a line. What fails is told on standard error; the command then ends with ``ExitCode/outputFailed``.
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

    /// Writes the version: the whole of a run with `--version`.
    static func writeVersion() -> ExitCode {
        write("carillon \(Wire.softwareVersion)") ? .done : .outputFailed
    }
}
