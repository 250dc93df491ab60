// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// `carillon help [COMMAND]`: shows the help of a command, as its option `--help` does.
enum HelpCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon help", usage: "[COMMAND]",
            summary: "Shows the help of a command, or the list of all commands.")
        let rest = try parser.parse(arguments)
        if rest.count > 1 { throw UsageError("help takes one COMMAND") }
        guard let name = rest.first else { return try CarillonTool.run(["--help"]) }
        guard let command = CarillonTool.command(name) else { throw CarillonTool.unknown(name) }
        return try command(["--help"])
    }
}
