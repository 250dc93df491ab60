import DBus
import NotificationCore

extension ObserverOptions {
    /// Reads the `a{sv}` that comes next.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "suspension-behavior": suspensionBehavior = try option.choice()
            case "automatic-suspension": automaticSuspension = try option.boolean()
            case "run-loop-mode": runLoopMode = try option.choice()
            default: throw option.unknown
            }
        }
    }
}

extension ObserverOptions {
    /// Appends the `a{sv}`; what is as by default is left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if suspensionBehavior != .coalesce { writer.entry("suspension-behavior", suspensionBehavior.rawValue) }
            if !automaticSuspension { writer.entry("automatic-suspension", false) }
            if runLoopMode != .default { writer.entry("run-loop-mode", runLoopMode.rawValue) }
        }
    }
}

extension PostOptions {
    /// Reads the `a{sv}` that comes next.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "deliver-immediately": deliverImmediately = try option.boolean()
            case "posting-style": postingStyle = try option.choice()
            case "coalesce-on": coalescing = Set(try option.choices())
            default: throw option.unknown
            }
        }
    }

    /// Appends the `a{sv}`; what is as by default is left out.
    public func append(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            if deliverImmediately { writer.entry("deliver-immediately", true) }
            if postingStyle != .now { writer.entry("posting-style", postingStyle.rawValue) }
            if !coalescing.isEmpty {
                writer.dictEntry { writer in
                    writer.append("coalesce-on")
                    writer.variant(of: "as") { writer in
                        writer.array(of: "s") { writer in
                            for key in CoalescingKey.allCases where coalescing.contains(key) {
                                writer.append(key.rawValue)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One option: its key, and its value inside the variant.
private struct Option {
    let key: String
    var value: MessageReader

    var unknown: CenterError { .invalidOption(key, reason: "there is no such option") }

    func boolean() throws(CenterError) -> Bool {
        var value = value
        guard let boolean = try? value.read(Bool.self) else { throw wrongType("a boolean (b)") }
        return boolean
    }

    func choice<Choice: RawRepresentable<String> & CaseIterable>() throws(CenterError) -> Choice {
        var value = value
        guard let text = try? value.readString() else { throw wrongType("a string (s)") }
        return try choice(named: text)
    }

    func choices<Choice: RawRepresentable<String> & CaseIterable>() throws(CenterError) -> [Choice] {
        var value = value
        guard value.nextSignature == "as", var elements = try? value.readContainer(.array) else {
            throw wrongType("an array of strings (as)")
        }
        var choices: [Choice] = []
        while let text = try? elements.readString() { choices.append(try choice(named: text)) }
        return choices
    }

    private func choice<Choice: RawRepresentable<String> & CaseIterable>(
        named text: String
    ) throws(CenterError) -> Choice {
        guard let choice = Choice(rawValue: text) else {
            let known = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw .invalidOption(key, reason: "'\(text.prefix(64))' is none of: \(known)")
        }
        return choice
    }

    private func wrongType(_ expected: String) -> CenterError {
        var value = value
        return .invalidOption(key, reason: "expected \(expected), got type '\(value.nextSignature)'")
    }
}

/// Calls `body` with every entry of the `a{sv}` that comes next, whose type was checked with the method's signature.
private func readOptions(
    _ reader: inout MessageReader, _ body: (Option) throws(CenterError) -> Void
) throws(CenterError) {
    var entries = reader.nextContents()
    reader.skip()
    while !entries.isAtEnd {
        var entry = entries.nextContents()
        entries.skip()
        guard let key = try? entry.readString() else { preconditionFailure("checked by the signature") }
        try body(Option(key: key, value: entry.nextContents()))
    }
}
