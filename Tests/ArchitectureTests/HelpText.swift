// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport

/// What `--help` of a program, or of one of its commands, says.
struct HelpText {
    struct Option: Hashable, CustomStringConvertible {
        let long: String
        let short: String?
        let takesValue: Bool
        /// What stands behind it.
        let help: String

        var description: String { (short.map { "-\($0), " } ?? "") + "--\(long)" + (takesValue ? "=" : "") }
    }

    let options: Set<Option>
    /// The names in the list of commands.
    let commands: [String]
    /// The numbers in the line about the exit status.
    let exitCodes: [Int]

    var longOptions: Set<String> { Set(options.map(\.long)) }

    /// Runs the program that was built.
    ///
    /// - Parameter command: of `carillon`.
    init(of program: String, command: String? = nil) throws {
        let arguments = [command, "--help"].compactMap { $0 }
        let result = try Command.run(try Executables.path(of: program), arguments, environment: ["LC_ALL": "C.UTF-8"])
        guard result.exitCode == 0 else { throw NotInTime("no help: \(result)") }
        var options: Set<Option> = []
        var commands: [String] = []
        var exitCodes: [Int] = []
        var isInCommands = false
        var isInStatus = false
        for line in result.standardOutput.split(separator: "\n", omittingEmptySubsequences: false) {
            if let match = line.wholeMatch(of: /\s+(?:-(\w), )?--([a-z-]+)(=\S+)?(?:\s\s(.*))?/) {
                options.insert(
                    Option(
                        long: String(match.2), short: match.1.map(String.init), takesValue: match.3 != nil,
                        help: match.4.map(String.init) ?? ""))
            }
            if isInCommands, let match = line.wholeMatch(of: /\ \ ([a-z]+)\s.*/) { commands.append(String(match.1)) }
            if line == "Commands:" { isInCommands = true }
            if line.hasPrefix("Exit status:") { isInStatus = true }
            if line.isEmpty { (isInCommands, isInStatus) = (false, false) }
            if isInStatus { exitCodes += line.matches(of: /\b[0-9]+\b/).compactMap { Int($0.0) } }
        }
        (self.options, self.commands, self.exitCodes) = (options, commands, exitCodes)
    }
}
