// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The parser of a program's command-line options, with GLib's `GOption`, which also composes `--help`. The service,
/// the bridge and each subcommand of `carillon` have one.
///
/// Declare the options, call ``parse(_:)`` once, then read the values. Arguments are taken as UTF-8 regardless of the
/// locale, so that a script under `LC_ALL=C` can pass any name. Threads: one thread only.
package final class CommandLineParser {
    /// An error in the arguments, as a text for a person.
    package struct UsageError: Error, CustomStringConvertible {
        package let description: String
        /// The declared options, if the caller requested only these by ``CommandLineParser/declarationsRequest``;
        /// otherwise nil.
        package private(set) var declarations: Declarations?

        package init(_ description: String) {
            self.description = description
        }

        fileprivate init(telling declarations: Declarations) {
            description = "the declarations of the options were requested"
            self.declarations = declarations
        }
    }

    /// The declared options of a parser, from which shell completion is generated.
    package struct Declarations: Sendable {
        package struct Option: Sendable {
            /// The name without the hyphens.
            package let long: String
            package let short: Character?
            /// The name of its value in the help; nil for an option without a value.
            package let placeholder: String?
            package let help: String
        }

        /// The text after the program's name, without the options.
        package let usage: String
        package let summary: String
        package let description: String
        /// The options in their order, followed by the option for help, which every parser has.
        package let options: [Option]
    }

    /// The argument that makes ``parse(_:)`` throw a ``UsageError`` with the declared options, so that a subcommand
    /// only declares its options and does nothing. Shell completion uses it inside of the program. No user can pass it:
    /// it contains a NUL character.
    package static let declarationsRequest = "\0"

    /// A handle to a declared option; ``value(_:)`` returns the option's value.
    package struct Option<Value> {
        /// The memory into which GLib writes the value.
        fileprivate let storage: UnsafeMutableRawPointer
    }

    private let program: String
    private let stopsAtFirstArgument: Bool
    private let texts: (usage: String, summary: String, description: String)
    private var declared: [Declarations.Option] = []
    private let context: OpaquePointer
    private var entries: [GOptionEntry] = []
    /// The names and help texts of the options. GLib keeps pointers to them until its option context is freed.
    private var strings: [UnsafeMutablePointer<CChar>] = []
    /// The memory into which GLib writes the values. The value of a string option is a pointer to a copy that GLib
    /// allocates and leaves to its caller. The copies are never freed, because a process parses its arguments once.
    private var storages: [UnsafeMutableRawPointer] = []

    /// - Parameters:
    ///   - program: the name that the help and messages show, such as `carillon post`.
    ///   - usage: the text after the program's name in the first line of the help, without the options.
    ///   - summary: the text between that line and the options.
    ///   - description: the text after the options.
    ///   - stopsAtFirstArgument: whether parsing ends at the first argument that is no option. ``parse(_:)`` then
    ///     returns this and all later arguments, for example a subcommand with its own options.
    package init(
        program: String, usage: String, summary: String, description: String = "", stopsAtFirstArgument: Bool = false
    ) {
        self.program = program
        self.stopsAtFirstArgument = stopsAtFirstArgument
        texts = (usage, summary, description)
        g_set_prgname(program)
        context = g_option_context_new(usage)
        g_option_context_set_summary(context, summary)
        if !description.isEmpty { g_option_context_set_description(context, description) }
        g_option_context_set_strict_posix(context, stopsAtFirstArgument ? 1 : 0)
    }

    deinit {
        g_option_context_free(context)
        strings.forEach { g_free($0) }
        storages.forEach { $0.deallocate() }
    }

    /// Returns the process's arguments without the program's name.
    ///
    /// - Throws: ``UsageError`` when an argument is not UTF-8; `CommandLine.arguments` would alter it silently.
    package static func processArguments() throws(UsageError) -> [String] {
        var arguments: [String] = []
        for index in 1..<max(1, Int(CommandLine.argc)) {
            guard let text = CommandLine.unsafeArgv[index], let argument = String(validatingCString: text) else {
                throw UsageError("argument \(index) is not valid UTF-8")
            }
            arguments.append(argument)
        }
        return arguments
    }

    /// Declares an option without a value.
    package func flag(_ name: String, short: Character? = nil, help: String) -> Option<Bool> {
        declare(name, short, G_OPTION_ARG_NONE, help, nil, initial: gboolean(0))
    }

    /// Declares an option with one value, which is nil when the option is absent.
    package func string(_ name: String, short: Character? = nil, placeholder: String, help: String) -> Option<String?> {
        // FILENAME, not STRING: GLib converts STRING from the locale's encoding and fails on UTF-8 under LC_ALL=C.
        declare(
            name, short, G_OPTION_ARG_FILENAME, help, placeholder, initial: UnsafeMutablePointer<CChar>?.none)
    }

    /// Declares an option that may be repeated, with one value each time.
    package func strings(_ name: String, short: Character? = nil, placeholder: String, help: String) -> Option<[String]>
    {
        declare(
            name, short, G_OPTION_ARG_FILENAME_ARRAY, help, placeholder,
            initial: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.none)
    }

    /// Parses `arguments` (without the program's name), and returns the arguments that are no options, in order.
    ///
    /// `--help` prints the help and ends the process; see ``end(writing:)``.
    ///
    /// - Throws: ``UsageError`` for an unknown option, a missing value, or a value of a flag.
    package func parse(_ arguments: [String]) throws(UsageError) -> [String] {
        if arguments == [Self.declarationsRequest] {
            let help = Declarations.Option(long: "help", short: "h", placeholder: nil, help: "Show help options")
            throw UsageError(
                telling: Declarations(
                    usage: texts.usage, summary: texts.summary, description: texts.description,
                    options: declared + [help]))
        }
        let (arguments, wantsHelp) = try checked(arguments)
        // GLib collects the arguments that are no options in the option with the empty name (`G_OPTION_REMAINING`). In
        // the parsed vector, some "--" would remain.
        let rest: Option<[String]> = declare(
            "", nil, G_OPTION_ARG_FILENAME_ARRAY, "", nil,
            initial: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.none)
        entries.append(GOptionEntry())
        g_option_context_add_main_entries(context, entries, nil)
        if wantsHelp { Self.end(writing: help) }
        // GLib takes strings from the vector and shortens it, so it gets its own copy.
        var vector = g_new(UnsafeMutablePointer<CChar>?.self, count: arguments.count + 2)
        vector![0] = g_strdup(program)
        for (index, argument) in arguments.enumerated() { vector![index + 1] = g_strdup(argument) }
        defer { g_strfreev(vector) }
        var error: UnsafeMutablePointer<GError>?
        guard g_option_context_parse_strv(context, &vector, &error) != 0 else {
            defer { g_error_free(error) }
            throw UsageError(String(cString: error!.pointee.message))
        }
        return value(rest)
    }

    /// The output of `--help`, without the last end of line. Read it after ``parse(_:)``, which passes the options to
    /// GLib.
    package var help: String {
        let text = g_option_context_get_help(context, 1, nil)!
        defer { g_free(text) }
        return String(decoding: String(cString: text).utf8.reversed().drop { $0 == 0x0A }.reversed(), as: UTF8.self)
    }

    /// The exit status of a program that can't write to its standard output.
    package static let outputFailed: Int32 = 5

    /// Writes the whole output of a run, such as the help or the version, and ends the process: with status 0, or with
    /// ``outputFailed`` and an error on standard error.
    package static func end(writing text: String) -> Never {
        do throws(StreamError) {
            try writeLine(text)
            exit(0)
        } catch {
            let program = g_get_prgname().map { String(cString: $0) } ?? ""
            printError("\(program): standard output: \(error)")
            exit(outputFailed)
        }
    }

    /// Checks the arguments before GLib parses them. Returns them with British spellings of option names replaced by
    /// the declared spelling, and whether one of them requests the help.
    ///
    /// - Throws: ``UsageError`` for a flag with a value, which GLib would ignore, and for an option that is not
    ///   declared.
    private func checked(_ arguments: [String]) throws(UsageError) -> (arguments: [String], wantsHelp: Bool) {
        var arguments = arguments
        // Whether the next argument is the value of the option before it.
        var isValue = false
        for (index, argument) in arguments.enumerated() {
            if isValue {
                isValue = false
            } else if argument == "--" {
                break
            } else if argument.hasPrefix("--") {
                let parts = argument.dropFirst(2).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                // Both the British and the American spelling are accepted; options are declared in the latter.
                let name = parts[0].split(separator: "-", omittingEmptySubsequences: false)
                    .map { $0 == "behaviour" ? "behavior" : $0 == "colour" ? "color" : $0 }.joined(separator: "-")
                let option = declared.first { $0.long == name }
                guard option != nil || name == "help" else {
                    let closest = Spelling.closest(to: name, among: declared.map(\.long) + ["help"])
                    throw UsageError(
                        "there is no option --\(name)" + (closest.map { "; did you mean '--\($0)'?" } ?? ""))
                }
                let takesValue = option?.placeholder != nil
                if !takesValue, parts.count > 1 {
                    throw UsageError("--\(name) takes no value; '\(parts[1])' was given")
                }
                if option == nil { return (arguments, true) }
                isValue = takesValue && parts.count == 1
                arguments[index] = "--" + name + argument.dropFirst(2 + parts[0].count)
            } else if argument.hasPrefix("-"), argument != "-" {
                // Several short options in one argument, such as -vn; the letters behind an option with a value are
                // its value.
                let letters = Array(argument.dropFirst())
                for (place, letter) in letters.enumerated() {
                    if letter == "h" || letter == "?" { return (arguments, true) }
                    guard let option = declared.first(where: { $0.short == letter }) else {
                        throw UsageError("there is no option -\(letter)")
                    }
                    guard option.placeholder != nil else { continue }
                    isValue = place == letters.count - 1
                    break
                }
            } else if stopsAtFirstArgument {
                break
            }
        }
        return (arguments, false)
    }

    // The values of options after ``parse(_:)``. The strings are UTF-8, because they come from Swift strings.

    package func value(_ option: Option<Bool>) -> Bool {
        option.storage.load(as: gboolean.self) != 0
    }

    package func value(_ option: Option<String?>) -> String? {
        option.storage.load(as: UnsafeMutablePointer<CChar>?.self).map { String(cString: $0) }
    }

    package func value(_ option: Option<[String]>) -> [String] {
        copyStrings(option.storage.load(as: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.self))
    }

    /// Declares an option to GLib, with memory of GLib's type `Raw` for its value.
    private func declare<Value, Raw>(
        _ name: String, _ short: Character?, _ type: GOptionArg, _ help: String, _ placeholder: String?, initial: Raw
    ) -> Option<Value> {
        let storage = UnsafeMutableRawPointer.allocate(
            byteCount: MemoryLayout<Raw>.size, alignment: MemoryLayout<Raw>.alignment)
        storage.initializeMemory(as: Raw.self, to: initial)
        storages.append(storage)
        declared.append(Declarations.Option(long: name, short: short, placeholder: placeholder, help: help))
        entries.append(
            GOptionEntry(
                long_name: keep(name), short_name: gchar(short?.asciiValue ?? 0), flags: 0, arg: type,
                arg_data: storage, description: keep(help), arg_description: placeholder.map { keep($0) }))
        return Option(storage: storage)
    }

    /// Returns a C copy of a string that lives as long as this object.
    private func keep(_ string: String) -> UnsafePointer<CChar> {
        let copy = g_strdup(string)!
        strings.append(copy)
        return UnsafePointer(copy)
    }
}

private func g_new<T>(_ type: T.Type, count: Int) -> UnsafeMutablePointer<T>? {
    g_malloc0_n(gsize(count), gsize(MemoryLayout<T>.stride)).assumingMemoryBound(to: T.self)
}

private func copyStrings(_ vector: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?) -> [String] {
    var result: [String] = []
    var next = vector
    while let string = next?.pointee {
        result.append(String(cString: string))
        next = next! + 1
    }
    return result
}
