// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon get NAME`, `carillon forget NAME` and `carillon retained`: print, remove and list retained values (R1 to
/// R3).
///
/// `get` and `forget` start the service if it does not run, because it restores its values then. `retained` inspects
/// the running service, as `status` does.
enum ValuesCommand {
    static func runGet(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon get", usage: "NAME", summary: "Prints the retained values of a name.",
            description: """
                'carillon post --retain' posts such values. There is one for each object, and for each machine and user
                that it comes from. The exit status is 6 if there is none.
                """)
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only the value of OBJECT")
        let json = parser.flag("json", short: "j", help: "Print one JSON object on each line, with poster and time")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        let name = try oneName(rest, of: "get")
        let (wanted, isJSON) = (parser.value(object) ?? "", parser.value(json))
        return CommandSession.run { session in
            session.ask(Get(name: name, object: wanted)) { values in
                for value in values { session.print(isJSON ? jsonText(value) : text(value)) }
                if values.isEmpty {
                    let object = wanted.isEmpty ? "" : " and the object '\(NotificationFormat.readable(wanted))'"
                    printError("carillon: no retained value of '\(NotificationFormat.readable(name))'\(object)")
                }
                session.finish(values.isEmpty ? .nothing : .done)
            }
        }
    }

    static func runForget(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon forget", usage: "NAME", summary: "Removes the retained values of a name.",
            description: "The values may have any poster and any origin. The exit status is 6 if there was none.")
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only the value of OBJECT")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        let name = try oneName(rest, of: "forget")
        let wanted = parser.value(object) ?? ""
        return CommandSession.run { session in
            session.ask(RemoveRetained(name: name, object: wanted)) { count in
                printError("forgot \(count) \(count == 1 ? "value" : "values")")
                session.finish(count == 0 ? .nothing : .done)
            }
        }
    }

    static func runRetained(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon retained", usage: "", summary: "Lists all retained values.",
            description: "A service that does not run is not started, and the exit status is 2.")
        let json = parser.flag("json", short: "j", help: "Print one JSON object on each line")
        let color = ColorChoice.declare(on: parser)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        if let extra = rest.first { throw UsageError("retained takes no argument '\(extra)'") }
        let isJSON = parser.value(json)
        let terminal = Terminal(color: try ColorChoice.value(of: color, from: parser))
        return CommandSession.run(startsService: false) { session in
            session.ask(Get(name: "")) { values in
                if isJSON {
                    for value in values { session.print(jsonText(value)) }
                    return session.finish(.done)
                }
                show(values, on: terminal, session)
                session.finish(.done)
            }
        }
    }

    /// Returns the only argument, which has to be a name.
    private static func oneName(_ arguments: [String], of command: String) throws(UsageError) -> String {
        guard let name = arguments.first, !name.isEmpty else { throw UsageError("\(command) needs a NAME") }
        if arguments.count > 1 { throw UsageError("\(command) takes one NAME") }
        return name
    }

    /// Returns a line for people: name, object and userInfo.
    private static func text(_ value: RetainedValueInfo) -> String {
        var parts = [NotificationFormat.readable(value.name)]
        if !value.object.isEmpty { parts.append(NotificationFormat.readable(value.object)) }
        if !value.userInfo.isEmpty { parts.append(PropertyListJSON.text(.dictionary(value.userInfo))) }
        return parts.joined(separator: "  ")
    }

    private static func jsonText(_ value: RetainedValueInfo) -> String {
        PropertyListJSON.object([
            ("name", PropertyListJSON.text(.string(value.name))),
            ("object", PropertyListJSON.text(.string(value.object))),
            ("userInfo", PropertyListJSON.text(.dictionary(value.userInfo))),
            ("details", PropertyListJSON.text(.dictionary(value.details))),
        ])
    }

    /// Prints a table of values without their userInfo.
    private static func show(_ values: [RetainedValueInfo], on terminal: Terminal, _ session: CommandSession) {
        let now = WallClock.microseconds()
        // The column `from` is left out if no value comes from another machine or user, as is usual.
        let showsOrigin = values.contains { $0.origin != nil }
        var table = Table(
            (["name", "object", "posted", "poster", "app"] + (showsOrigin ? ["from"] : [])).map { Table.Column($0) })
        for value in values {
            let age = value.time.map { Readable.ago(seconds: Double(now - $0) / 1e6) }
            let object = value.object.isEmpty ? Sign.none : NotificationFormat.readable(value.object)
            let origin = showsOrigin ? [Table.Cell(value.origin.map(NotificationFormat.harmless) ?? Sign.none)] : []
            table.append(
                [
                    Table.Cell(NotificationFormat.readable(value.name)), Table.Cell(object),
                    Table.Cell(age ?? Sign.unknown),
                    Table.Cell(value.poster ?? Sign.unknown), Table.Cell(value.details["app"]?.readable ?? Sign.none),
                ] + origin)
        }
        for line in table.lines(on: terminal) { session.print(line) }
    }
}

extension RetainedValueInfo {
    /// The user and the machine that the value comes from, as far as they are known, such as `anna@alpha`; nil for this
    /// session.
    var origin: String? {
        guard host != nil || user != nil else { return nil }
        return (user ?? "") + (host.map { "@\($0)" } ?? "")
    }
}
