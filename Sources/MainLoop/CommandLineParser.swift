// SPDX-License-Identifier: Apache-2.0
import CGLib

/// Command-line options, parsed by GLib's `GOption`, which also writes `--help`.
///
/// Declare the options, call ``parse(_:)`` once, then ask for the values. Arguments are taken as UTF-8 whatever the
/// locale is, so that a script under `LC_ALL=C` can pass any name. Threads: one thread only.
public final class CommandLineParser {
    /// What was wrong with the arguments, in words for a person.
    public struct UsageError: Error, CustomStringConvertible {
        public let description: String
        /// What was declared, where only that was asked for; see ``CommandLineParser/inquiry``.
        public private(set) var declarations: Declarations?

        public init(_ description: String) {
            self.description = description
        }

        fileprivate init(telling declarations: Declarations) {
            description = "what is declared was asked for"
            self.declarations = declarations
        }
    }

    /// What a parser was told that there is, for whoever completes command lines.
    public struct Declarations: Sendable {
        public struct Option: Sendable {
            /// Without the hyphens.
            public let long: String
            public let short: Character?
            /// What the help calls its value; nil for one that takes none.
            public let placeholder: String?
            public let help: String
        }

        /// What follows the program's name, without the options.
        public let usage: String
        public let summary: String
        public let description: String
        /// In their order, and at last the one for help, which every parser has.
        public let options: [Option]
    }

    /// Instead of arguments, this has ``parse(_:)`` throw what was declared until then, so that nothing is run. No process
    /// can be given it as an argument, as it holds a NUL character.
    public static let inquiry = "\0"

    /// A declared option, to ask for its value with.
    public struct Option<Value> {
        fileprivate let storage: UnsafeMutableRawPointer
    }

    private let program: String
    private let texts: (usage: String, summary: String, description: String)
    private var declared: [Declarations.Option] = []
    private let context: OpaquePointer
    private var entries: [GOptionEntry] = []
    /// GLib keeps pointers to names, help texts and values until the context is freed.
    private var strings: [UnsafeMutablePointer<CChar>] = []
    private var storages: [UnsafeMutableRawPointer] = []

    /// - Parameters:
    ///   - program: the name that the help and messages show, such as `carillon post`.
    ///   - usage: what follows the program's name in the first line of the help, without the options.
    ///   - summary: the text between that line and the options.
    ///   - description: the text after the options.
    ///   - stopsAtFirstArgument: leave everything from the first argument that is no option for the caller.
    public init(
        program: String, usage: String, summary: String, description: String = "", stopsAtFirstArgument: Bool = false
    ) {
        self.program = program
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

    /// The process's arguments without the program's name.
    ///
    /// - Throws: ``UsageError`` when one is not UTF-8, which `CommandLine.arguments` would silently alter.
    public static func processArguments() throws(UsageError) -> [String] {
        var arguments: [String] = []
        for index in 1..<max(1, Int(CommandLine.argc)) {
            guard let text = CommandLine.unsafeArgv[index], let argument = String(validatingCString: text) else {
                throw UsageError("argument \(index) is not valid UTF-8")
            }
            arguments.append(argument)
        }
        return arguments
    }

    public func flag(_ name: String, short: Character? = nil, help: String) -> Option<Bool> {
        declare(name, short, G_OPTION_ARG_NONE, help, nil, initial: gboolean(0))
    }

    public func string(_ name: String, short: Character? = nil, placeholder: String, help: String) -> Option<String?> {
        // FILENAME, not STRING: GLib converts STRING from the locale's encoding and fails on UTF-8 under LC_ALL=C.
        declare(
            name, short, G_OPTION_ARG_FILENAME, help, placeholder, initial: UnsafeMutablePointer<CChar>?.none)
    }

    public func strings(_ name: String, short: Character? = nil, placeholder: String, help: String) -> Option<[String]>
    {
        declare(
            name, short, G_OPTION_ARG_FILENAME_ARRAY, help, placeholder,
            initial: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.none)
    }

    /// Parses the process's arguments, all of which have to be options.
    ///
    /// - Throws: as ``parse(_:)``, and for an argument that is none.
    public func parseOptions() throws(UsageError) {
        if let argument = try parse(try Self.processArguments()).first {
            throw UsageError("unexpected argument '\(argument)'")
        }
    }

    /// Parses `arguments` (without the program's name) and returns what is no option, in order.
    ///
    /// `--help` prints and ends the process with status 0, as GOption does.
    ///
    /// - Throws: ``UsageError`` for an unknown option, a missing value, or text that is not UTF-8.
    public func parse(_ arguments: [String]) throws(UsageError) -> [String] {
        if arguments == [Self.inquiry] {
            let help = Declarations.Option(long: "help", short: "h", placeholder: nil, help: "Show help options")
            throw UsageError(
                telling: Declarations(
                    usage: texts.usage, summary: texts.summary, description: texts.description,
                    options: declared + [help]))
        }
        // GLib leaves some "--" in the vector and takes others out; what it collects itself has none.
        let rest: Option<[String]> = declare(
            "", nil, G_OPTION_ARG_FILENAME_ARRAY, "", nil,
            initial: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.none)  // G_OPTION_REMAINING
        entries.append(GOptionEntry())
        g_option_context_add_main_entries(context, entries, nil)
        // GLib steals strings from the vector and shortens it, so it gets its own copy.
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

    public func value(_ option: Option<Bool>) -> Bool {
        option.storage.load(as: gboolean.self) != 0
    }

    public func value(_ option: Option<String?>) -> String? {
        option.storage.load(as: UnsafeMutablePointer<CChar>?.self).map { String(cString: $0) }
    }

    public func value(_ option: Option<[String]>) -> [String] {
        copyStrings(option.storage.load(as: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.self))
    }

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
