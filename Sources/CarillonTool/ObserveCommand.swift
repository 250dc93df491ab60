import Collections
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// `carillon observe [NAME ...]`
enum ObserveCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observe", usage: "[NAME ...]",
            summary: "Prints the notifications of these names, or of any name, as they arrive.",
            description: """
                Standard error says when observing has begun, what was lost, and when the service goes and comes; with
                --json standard output does, too, in objects with the member "event". Without --count it goes on until
                it is interrupted. The exit status is 4 when notifications were lost.
                """)
        let object = parser.string("object", short: "o", placeholder: "OBJECT", help: "Only those about OBJECT")
        let behavior = parser.string(
            "suspension-behavior", short: "b", placeholder: "BEHAVIOR",
            help:
                "What becomes of notifications while it is suspended: \(ChoiceArguments.names(SuspensionBehavior.self))"
        )
        let mode = parser.string(
            "run-loop-mode", short: "m", placeholder: "MODE",
            help: "How urgent they are to it: \(ChoiceArguments.names(RunLoopMode.self))")
        let json = parser.flag("json", short: "j", help: "Print a JSON object a line")
        let count = parser.string("count", short: "n", placeholder: "N", help: "End after N notifications")
        let timeout = parser.string(
            "timeout", short: "t", placeholder: "SECONDS", help: "End after SECONDS, with status 3")
        let version = parser.flag("version", help: "Show the version and exit")
        let names = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }

        let wanted = try positive(parser.value(count), "--count") { Int($0) }
        let seconds = try positive(parser.value(timeout), "--timeout") { Double($0) }
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is no name of a notification") }
        let about = parser.value(object) ?? ""
        var options = ObserverOptions()
        options.suspensionBehavior =
            try ChoiceArguments.one(parser.value(behavior), "--suspension-behavior") ?? options.suspensionBehavior
        options.runLoopMode = try ChoiceArguments.one(parser.value(mode), "--run-loop-mode") ?? options.runLoopMode
        let watch = Watch(
            names: names, object: about, options: options, wanted: wanted,
            format: parser.value(json) ? .json : .people)
        return CommandSession.run { session in
            if let seconds { session.finish(.timedOut, afterSeconds: seconds) }
            watch.start(on: session)
        }
    }

    private static func positive<Number: Comparable & ExpressibleByIntegerLiteral>(
        _ text: String?, _ option: String, _ convert: (String) -> Number?
    ) throws(UsageError) -> Number? {
        guard let text else { return nil }
        guard let number = convert(text), number > 0, number < 4_000_000 else {
            throw UsageError("\(option): '\(text)' is not a number from 1 to 4000000")
        }
        return number
    }
}

/// What is observed, and what came of it.
private final class Watch: CommandSession.Listener, @unchecked Sendable {
    // Sendable: as its session, on one thread.
    private unowned var session: CommandSession!
    private let names: [String]
    private let object: String
    private let options: ObserverOptions
    private let format: NotificationFormat
    private var remaining: Int?
    private var hasBegun = false
    private var isServed = true
    private var hasLost = false

    init(names: [String], object: String, options: ObserverOptions, wanted: Int?, format: NotificationFormat) {
        self.names = names
        self.object = object
        self.options = options
        self.format = format
        remaining = wanted
    }

    func start(on session: CommandSession) {
        self.session = session
        session.listener = self
        session.finishWhenInterrupted { [unowned self] in remaining == nil ? outcome : .interrupted }
        for name in names.isEmpty ? [""] : names {
            session.submit(
                .register(
                    RegistrationKey(
                        name: name.isEmpty ? nil : ExactText(name), object: object.isEmpty ? nil : ExactText(object),
                        options: options)))
        }
        session.submit(.barrier { [self] isServed in if isServed { begin() } })
    }

    private func begin() {
        hasBegun = true
        let what = names.isEmpty ? "all names" : names.joined(separator: ", ")
        printError("observing \(what)\(object.isEmpty ? "" : " about \(object)")")
    }

    func received(_ notification: ArrivedNotification) {
        session.print(format.text(of: notification))
        guard let left = remaining else { return }
        remaining = left - 1
        if left == 1 { session.finish(outcome) }
    }

    private var outcome: ExitCode { hasLost ? .lost : .done }

    // MARK: What people and programs have to know besides

    func mayHaveMissed(_ gap: Gap) {
        switch gap {
        case .dropped(let count, let reason):
            hasLost = true
            tell(.dropped(count: count, reason: reason), "the service lost \(count) notifications for us (\(reason))")
        case .missing(let count):
            hasLost = true
            tell(.missing(count: count), "\(count) notifications are missing")
        case .undecodable(let reason):
            hasLost = true
            tell(.undecodable(reason: reason), "a message of the service was not understood: \(reason)")
        // Told by the change of state before it; this process has no queue of its own.
        case .serviceChanged, .overflow: break
        }
    }

    func stateChanged(_ state: ConnectionState) {
        switch state {
        case .connecting, .disconnected:
            guard hasBegun, isServed else { return }
            isServed = false
            tell(.serviceGone, "the service went away; notifications may be missing")
        case .connected:
            guard hasBegun, !isServed else { return }
            isServed = true
            tell(.serviceBack, "the service is back")
        case .serviceUnavailable(let reason):
            // Once there was one, the next is waited for.
            if !hasBegun { session.fail(.unavailable(reason)) }
        case .nameTaken(let reason):
            if hasBegun { warn(reason) } else { session.fail(.nameTaken(reason)) }
        case .notAnswering(let reason): warn(reason)
        }
    }

    private func warn(_ words: String) { printError("carillon: \(words)") }

    private func tell(_ event: ObservationEvent, _ words: String) {
        printError("carillon: \(words)")
        if format == .json { session.print(event.json) }
    }
}
