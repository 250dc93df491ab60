// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonJSON
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon replay FILE`: posts the notifications of a recording again, at the pace of their times. ``Recorder`` and
/// `carillon observe --json` write recordings.
enum ReplayCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon replay", usage: "FILE", summary: "Posts recorded notifications again.",
            description: """
                FILE, or standard input if it is -, has one JSON object on each line, as --record and 'observe --json'
                write them: name, object, userInfo, and the time, which sets the pace of the replay. The original
                posters are not restored.
                """)
        let speed = parser.string(
            "speed", placeholder: "FACTOR", help: "Replay FACTOR times as fast; 1 if not given")
        let fast = parser.flag("fast", help: "Replay as fast as possible")
        let verbose = parser.flag("verbose", short: "v", help: "Print the number of clients that each is delivered to")
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let path = rest.first, !path.isEmpty else { throw UsageError("replay needs a FILE") }
        if rest.count > 1 { throw UsageError("replay takes one FILE") }
        var factor = 1.0
        if let text = parser.value(speed) {
            guard let number = Double(text), (0.001...1000).contains(number) else {
                throw UsageError("--speed: '\(text)' is not a number from 0.001 to 1000")
            }
            factor = number
        }
        if parser.value(fast), parser.value(speed) != nil { throw UsageError("--fast and --speed exclude each other") }
        let descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { throw UsageError("\(path): \(String(cString: strerror(errno)))") }
        let (pace, isVerbose) = (parser.value(fast) ? nil : factor, parser.value(verbose))
        var recording = Recording(pace: pace)
        var poster: LinePoster?
        let code = CommandSession.run { session in
            poster = LinePoster(
                session: session, reading: descriptor, source: path == "-" ? "" : path, showsProgress: !isVerbose,
                report: { if isVerbose { session.print("\($0) \($0 == 1 ? "client" : "clients")") } },
                convert: { line throws(UsageError) in try recording.post(in: line) })
            poster?.start()
        }
        if recording.losses > 0 {
            printError("carillon: \(recording.losses) notifications were lost when this was recorded")
        }
        return code
    }
}

/// A recording during its replay: it converts lines to posts with delays, and counts the losses that it records.
private struct Recording {
    /// The factor of the recording's speed; nil for as fast as possible.
    let pace: Double?
    /// The time of the first notification, in microseconds since 1970.
    private var start: Int64?
    /// The delay of the last post after the first. The next post has at least this delay, even if the clock was set
    /// back during the recording.
    private var delay = Duration.zero
    /// The number of notifications that events in the recording report as lost.
    private(set) var losses: UInt64 = 0

    init(pace: Double?) {
        self.pace = pace
    }

    /// Returns the post in a line, with its delay after the first post. Returns nil for a blank line, and for an event,
    /// whose losses are counted.
    mutating func post(in line: String) throws(UsageError) -> (outgoing: OutgoingPost, delay: Duration)? {
        guard line.utf8.contains(where: { $0 != 0x20 && $0 != 0x09 && $0 != 0x0D }) else { return nil }
        let object: JSON
        do throws(JSON.Malformed) {
            object = try JSON(line)
        } catch {
            throw UsageError("not valid JSON: \(error)")
        }
        if let event = object["event"]?.text {
            guard event == "dropped" || event == "missing" else { return nil }
            guard let count = object["count"]?.integer, count >= 0 else {
                throw UsageError("\"count\" is not a whole number of at least 0")
            }
            let (sum, isTooLarge) = losses.addingReportingOverflow(UInt64(count))
            losses = isTooLarge ? .max : sum
            return nil
        }
        guard let name = object["name"]?.text else { throw UsageError("the key \"name\" is missing") }
        var userInfo: [String: PropertyList] = [:]
        if let value = object["userInfo"] {
            do throws(PropertyListJSON.Failure) {
                userInfo = try PropertyListJSON.userInfo(from: value)
            } catch {
                throw UsageError("\(error)")
            }
        }
        if let pace, let text = object["time"]?.text {
            guard let time = ISO8601Date.microseconds(from: text) else {
                throw UsageError("\"time\" is not like 2026-11-21T09:30:00Z")
            }
            let first = start ?? time
            start = first
            delay = max(delay, .microseconds(Double(time - first) / pace))
        }
        do throws(CenterError) {
            let outgoing = try OutgoingPost(name: name, object: object["object"]?.text ?? "", userInfo: userInfo)
            return (outgoing, delay)
        } catch {
            throw UsageError(error.description)
        }
    }
}
