// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// `carillon monitor [NAME ...]`: prints copies of posts. The service does not count a monitor among the receivers of a
/// post.
enum MonitorCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon monitor", usage: "[NAME ...]",
            summary: "Prints the posts of these names, or all posts, with or without receivers.",
            description: """
                Posters do not count a monitor as a receiver. A line is the unique name of the poster and the line of
                'carillon observe'. Posts on channels are printed as well. Standard error, the objects with the member
                "event", and the exit status are those of 'carillon observe'.
                """)
        let read = try ObservationArguments.read(arguments, by: parser, showsPoster: true) { parser in
            parser.string("record", placeholder: "FILE", help: "Also append them to FILE, for 'carillon replay'")
        }
        guard let (arguments, record) = read else { return Output.writeVersion() }
        // A recording has the time of each post, which the service sends only if the detail `time` is requested.
        let path = parser.value(record)
        arguments.warnOfPatterns()
        let observation = Observation(
            arguments.scope(
                ObserverOptions(isMonitor: true), wanted: arguments.wanted, details: path == nil ? [] : [.time]),
            activity: "monitoring")
        return try CommandSession.run { session throws(UsageError) in
            let recorder = try path.map { path throws(UsageError) in try Recorder(path, on: session) }
            if let seconds = arguments.seconds { session.after(seconds) { observation.end(.timedOut) } }
            observation.start(on: session) { _ in
                [Printer(arguments.format, on: session)] + (recorder.map { [$0] } ?? [])
            }
        }
    }
}
