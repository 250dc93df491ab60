// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// `carillon why CLIENT [NAME]`: explains whether a notification would arrive at a program, and why not (B3).
///
/// It asks the service once for each client that CLIENT names, and prints the sentences of the service's answer.
enum WhyCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon why", usage: "CLIENT [NAME]",
            summary: "Explains whether a program would receive a notification now, later or not at all.",
            description: """
                CLIENT is a unique name such as :1.42, a process id, the name of a program or the id of an application.
                Without NAME it explains the state of all observers of the program. A service that does not run is not
                started, and the exit status is 2. It is 6 if there is no such client.
                """)
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "A notification of this object")
        let json = parser.flag("json", short: "j", help: "Print one JSON object on each line")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let text = rest.first else { throw UsageError("why needs a CLIENT") }
        if rest.count > 2 { throw UsageError("why takes a CLIENT and a NAME") }
        let name = rest.count > 1 ? rest[1] : ""
        if rest.count > 1, name.isEmpty { throw UsageError("'' is not the name of a notification") }
        if name.isEmpty, parser.value(object) != nil { throw UsageError("--object needs a NAME") }
        let terminal = Terminal()
        let (chosen, isJSON, wanted) = (try ClientSelector(text), parser.value(json), parser.value(object) ?? "")
        return CommandSession.run(startsService: false) { session in
            chosen.ask({ Explain($0.name.rawValue, name: name, object: wanted) }, on: session) { client, reasons in
                guard isJSON else {
                    for reason in reasons {
                        terminal.wrapped(NotificationFormat.harmless(reason)).forEach { session.print($0) }
                    }
                    return
                }
                session.print(
                    PropertyListJSON.object([
                        ("client", PropertyListJSON.text(.string(client.name.rawValue))),
                        ("reasons", PropertyListJSON.text(.array(reasons.map { .string($0) }))),
                    ]))
            }
        }
    }
}
