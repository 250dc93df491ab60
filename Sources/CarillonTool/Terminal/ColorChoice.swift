// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// `--color`: whether output has colors.
enum ColorChoice: String, CaseIterable, Sendable {
    /// Colors on a terminal that supports them, unless `NO_COLOR` is set.
    case auto
    case always
    case never

    /// The declared option, by which its value is read.
    struct Option {
        fileprivate let option: CommandLineParser.Option<String?>
    }

    static func declare(on parser: CommandLineParser) -> Option {
        Option(
            option: parser.string(
                "color", placeholder: "WHEN", help: "Whether to use colors: \(ChoiceArguments.names(ColorChoice.self))"
            ))
    }

    static func value(of declared: Option, from parser: CommandLineParser) throws(UsageError) -> ColorChoice {
        try ChoiceArguments.one(parser.value(declared.option), "--color") ?? .auto
    }
}
