// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The parser of an incomplete `carillon` command line, for the completion of its last word in a shell.
///
/// It takes the words before the last one by means of the options and arguments that the command declares for its help.
/// From the position it derives the kind of the last word, such as a command, an option or the name of a notification.
struct IncompleteCommandLine {
    /// The kinds of words that only the running service can list; see ``ServiceCompletions``.
    enum ServiceWordKind: Equatable, Sendable {
        case names
        /// The objects of a name; nil for the objects of all names.
        case objects(String?)
        case clients
    }

    /// The possible completions of the last word.
    enum Completions {
        /// These words. `prefix` is the beginning of the typed word that stays before each candidate, such as
        /// `--sort=`.
        case words([Candidate], prefix: String)
        /// Words that the service lists.
        case known(ServiceWordKind, prefix: String)
        /// File names, which the shell lists.
        case files

        static let nothing = Completions.words([], prefix: "")
    }

    private typealias Option = CommandLineParser.Declarations.Option

    /// The options and the usage of the command, or of the program before the command; nil for an unknown command.
    private let declarations: CommandLineParser.Declarations?
    /// The arguments that are no options, without the command.
    private var arguments: [String] = []
    /// The option whose value the next word is; nil if the next word is no value.
    private var pending: Option?
    /// Whether `--` was given, behind which no word is an option.
    private var hasOptionsEnded = false
    /// The name of the command; nil if it has not been typed.
    private let command: String?

    /// - Parameter words: all words before the one being typed, without the program's name.
    init(before words: some Collection<String>) {
        // The command and its words. The options before the command have no values, and do not matter.
        let own = words.drop { $0.hasPrefix("-") }
        command = own.first
        declarations =
            if let name = command { CarillonTool.command(name).flatMap(Self.declarations) } else {
                Self.declarations(of: CarillonTool.run)
            }
        for word in own.dropFirst() { take(word) }
    }

    /// Returns the declarations of a command. ``CommandLineParser/declarationsRequest`` as the only argument makes its
    /// parser throw them before the command does anything.
    private static func declarations(
        of command: ([String]) throws(UsageError) -> ExitCode
    ) -> CommandLineParser.Declarations? {
        do throws(UsageError) {
            _ = try command([CommandLineParser.declarationsRequest])
            return nil
        } catch {
            return error.declarations
        }
    }

    /// Parses the next word.
    private mutating func take(_ word: String) {
        if pending != nil {
            pending = nil
        } else if hasOptionsEnded || !word.hasPrefix("-") || word == "-" {
            arguments.append(word)
        } else if word == "--" {
            hasOptionsEnded = true
        } else if word.hasPrefix("--") {
            let option = option(long: word.dropFirst(2))
            if option?.placeholder != nil { pending = option }
        } else {
            // One-letter options can share a word. The first one with a value takes the letters behind it as the value,
            // or the next word if no letters follow.
            for (index, letter) in word.dropFirst().enumerated() {
                guard let option = declarations?.options.first(where: { $0.short == letter }) else { return }
                guard option.placeholder != nil else { continue }
                if index == word.count - 2 { pending = option }
                return
            }
        }
    }

    private func option(long name: some StringProtocol) -> Option? {
        declarations?.options.first { $0.long == name }
    }

    // MARK: Current word

    /// Returns the completions of the last word, of which `current` has been typed.
    func completions(for current: String) -> Completions {
        guard let declarations else { return .nothing }
        if let pending { return completions(pending.placeholder ?? "", for: current, prefix: "") }
        if !hasOptionsEnded, current.hasPrefix("--"), let equals = current.firstIndex(of: "=") {
            let name = current[current.index(current.startIndex, offsetBy: 2)..<equals]
            guard let placeholder = option(long: name)?.placeholder else { return .nothing }
            let start = current.index(after: equals)
            return completions(placeholder, for: String(current[start...]), prefix: String(current[..<start]))
        }
        if !hasOptionsEnded, current.hasPrefix("-") {
            return .words(
                declarations.options.map { Candidate(word: "--\($0.long)", description: $0.help) }, prefix: "")
        }
        guard command != nil else { return .words(Self.commands, prefix: "") }
        return completions(argument(arguments.count, in: declarations.usage), for: current, prefix: "")
    }

    /// The names of all commands.
    private static var commands: [Candidate] {
        CarillonTool.commands.map { Candidate(word: $0.name, description: $0.help) }
    }

    /// Returns the placeholder of an argument in the usage, such as `CLIENT` in `CLIENT [NAME]`, or the last one of
    /// `[NAME ...]`; empty beyond the last.
    private func argument(_ index: Int, in usage: String) -> String {
        let words = usage.split { " []".utf8.contains($0.asciiValue ?? 0) }.map(String.init)
        let names = words.filter { $0 != "..." }
        if index < names.count { return names[index] }
        return words.last == "..." ? names.last ?? "" : ""
    }

    /// Returns the completions of a value or an argument, whose kind the placeholder in the help or the usage tells.
    ///
    /// - Parameters:
    ///   - current: the typed part of the value.
    ///   - prefix: the typed part before the value, such as `--sort=`.
    private func completions(_ placeholder: String, for current: String, prefix: String) -> Completions {
        switch placeholder {
        case "NAME": .known(.names, prefix: prefix)
        case "OBJECT": .known(.objects(name), prefix: prefix)
        case "CLIENT": .known(.clients, prefix: prefix)
        case "FILE", "DIRECTORY": .files
        case "COMMAND" where command == "help": .words(Self.commands, prefix: prefix)
        case "ACTION": words(BridgeCommand.Action.self, prefix)
        case "STYLE": words(PostingStyle.self, prefix)
        case "KEY": several(CoalescingKey.self, current, prefix)
        case "BEHAVIOR": words(SuspensionBehavior.self, prefix)
        case "MODE": words(RunLoopMode.self, prefix)
        case "WHEN": words(ColorChoice.self, prefix)
        case "VIEW": words(TopView.self, prefix)
        case "COLUMN":
            .words(
                TopView.allCases.flatMap { view in
                    view.columns.map { Candidate(word: $0.title, description: "\(view.rawValue): \($0.help)") }
                }, prefix: prefix)
        default: .nothing
        }
    }

    /// The argument NAME, to which an object belongs; nil if it has not been typed.
    private var name: String? {
        guard let usage = declarations?.usage else { return nil }
        return arguments.indices.first { argument($0, in: usage) == "NAME" }.map { arguments[$0] }
    }

    /// Returns the keywords of an enumeration as completions.
    private func words<Value: ChoiceArguments.Choice>(_: Value.Type, _ prefix: String) -> Completions {
        .words(Value.allCases.map { Candidate(word: $0.rawValue) }, prefix: prefix)
    }

    /// Returns completions of keywords that are separated by commas, each of which is given once.
    private func several<Value: ChoiceArguments.Choice>(_: Value.Type, _ current: String, _ prefix: String)
        -> Completions
    {
        let given = current.split(separator: ",", omittingEmptySubsequences: false).dropLast().map(String.init)
        let candidates = Value.allCases.map(\.rawValue).filter { !given.contains($0) }.map { Candidate(word: $0) }
        return .words(candidates, prefix: given.reduce(prefix) { "\($0)\($1)," })
    }
}
