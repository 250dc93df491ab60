// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The option `--color` of several commands: whether output has colors.
enum ColorChoice: String, CaseIterable, Sendable {
    /// Colors on a terminal that supports them, unless `NO_COLOR` is set.
    case auto
    case always
    case never

    /// The option as declared on a parser, by which ``value(of:from:)`` reads its value.
    struct Option {
        fileprivate let option: CommandLineParser.Option<String?>
    }

    /// Declares the option on the parser of a command.
    static func declare(on parser: CommandLineParser) -> Option {
        Option(
            option: parser.string(
                "color", placeholder: "WHEN", help: "Whether to use colors: \(ChoiceArguments.names(ColorChoice.self))"
            ))
    }

    /// Returns the value after the parsing; `auto` without the option.
    static func value(of declared: Option, from parser: CommandLineParser) throws(UsageError) -> ColorChoice {
        try ChoiceArguments.one(parser.value(declared.option), "--color") ?? .auto
    }
}
