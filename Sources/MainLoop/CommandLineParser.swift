import CGLib

/// Command-line options, parsed by GLib's `GOption`, which also writes `--help`.
///
/// Declare the options, call ``parse(_:)`` once, then ask for the values. Arguments are taken as UTF-8 whatever the
/// locale is, so that a script under `LC_ALL=C` can pass any name. Threads: one thread only.
public final class CommandLineParser {
    /// What was wrong with the arguments, in words for a person.
    public struct UsageError: Error, CustomStringConvertible {
        public let description: String

        public init(_ description: String) {
            self.description = description
        }
    }

    /// A declared option, to ask for its value with.
    public struct Option<Value> {
        fileprivate let storage: UnsafeMutableRawPointer
    }

    private let program: String
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

    /// Parses `arguments` (without the program's name) and returns what is no option, in order.
    ///
    /// `--help` prints and ends the process with status 0, as GOption does.
    ///
    /// - Throws: ``UsageError`` for an unknown option, a missing value, or text that is not UTF-8.
    public func parse(_ arguments: [String]) throws(UsageError) -> [String] {
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
