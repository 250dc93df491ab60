import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// `carillon observe [NAME ...]`
enum ObserveCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon observe", usage: "[NAME ...]",
            summary: "Prints the notifications of these names, or of any name, as they arrive.",
            description: """
                Standard error says when observing has begun. Without --count it goes on until it is interrupted.
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
        if parser.value(version) { return CarillonTool.showVersion() }

        let wanted = try positive(parser.value(count), "--count") { Int($0) }
        let seconds = try positive(parser.value(timeout), "--timeout") { Double($0) }
        if let name = names.first(where: \.isEmpty) { throw UsageError("'\(name)' is no name of a notification") }
        let format = parser.value(json) ? NotificationSignal.json : NotificationSignal.line
        let about = parser.value(object) ?? ""
        var options = ObserverOptions()
        options.suspensionBehavior =
            try ChoiceArguments.one(parser.value(behavior), "--suspension-behavior") ?? options.suspensionBehavior
        options.runLoopMode = try ChoiceArguments.one(parser.value(mode), "--run-loop-mode") ?? options.runLoopMode
        return BusSession.run { session in
            let observation = Observation(
                session: session, names: names.isEmpty ? [""] : names, object: about, options: options,
                wanted: wanted, format: format)
            session.finishWhenInterrupted { wanted == nil ? .done : .interrupted }
            if let seconds { session.finish(.timedOut, afterSeconds: seconds) }
            observation.start()
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

/// Registrations that are made again whenever the service comes back.
private final class Observation {
    private unowned let session: BusSession
    private let names: [String]
    private let object: String
    private let options: ObserverOptions
    private let format: (NotificationSignal) -> String
    private var remaining: Int?
    /// The unique name of the service that has our registrations; nobody else's signals are believed.
    private var service: UniqueName?
    private var observers: Set<ObserverID> = []
    private var hasStarted = false
    /// Whether a call is under way that ends with our observers registered.
    private var isRegistering = false

    init(
        session: BusSession, names: [String], object: String, options: ObserverOptions, wanted: Int?,
        format: @escaping (NotificationSignal) -> String
    ) {
        self.session = session
        self.names = names
        self.object = object
        self.options = options
        self.format = format
        remaining = wanted
    }

    func start() {
        // The connection keeps this object for as long as it lives.
        session.connection.onMessage = { [self] message in handle(message) }
        session.connection.addMatch(OwnerChange.matchRule(for: Wire.busName))
        register()
    }

    private func handle(_ message: Message) -> Bool {
        if let change = OwnerChange(message) {
            if change.concerns(Wire.busName) { ownerChanged(to: change.newOwner) }
            return true
        }
        guard message.sender == service, let signal = try? NotificationSignal(message) else { return false }
        guard remaining != 0 else { return true }
        printLine(format(signal))
        if let left = remaining {
            remaining = left - 1
            if left == 1 { session.finish(.done) }
        }
        return true
    }

    private func ownerChanged(to owner: UniqueName?) {
        guard hasStarted, owner != service else { return }
        service = owner
        if owner == nil { printError("carillon: the service went away; notifications may be missing") }
        if !isRegistering { renew() }
    }

    private func renew() {
        isRegistering = true
        // The next service may have taken up our registrations. This call starts it where the bus can; where it
        // can't, its coming is announced.
        let question = ListObservers(of: session.connection.uniqueName!.rawValue)
        session.connection.call(question.message()) { [self] result in
            switch result {
            case .success(let reply):
                service = reply.sender
                isRegistering = false
                let listed = (try? ListObservers.reply(in: reply)) ?? []
                if !observers.isSubset(of: listed.map(\.id)) { register() }
            case .failure(let error): registrationFailed(error)
            }
        }
    }

    private func register() {
        observers = []
        isRegistering = true
        for name in names {
            let call = AddObserver(name: name, object: object, options: options)
            session.connection.call(call.message()) { [self] result in
                switch result {
                case .success(let reply):
                    service = reply.sender
                    if let id = try? AddObserver.reply(in: reply) { observers.insert(id) }
                    if observers.count == names.count { registered() }
                case .failure(let error): registrationFailed(error)
                }
            }
        }
    }

    /// Without a service we wait for the next one, unless there never was one, or it came while we were asking.
    private func registrationFailed(_ error: BusError) {
        guard hasStarted, error.meansNoService || error.name == BusError.noReplyName else { return session.fail(error) }
        isRegistering = false
        if service != nil { renew() }
    }

    private func registered() {
        hasStarted = true
        isRegistering = false
        let what = names == [""] ? "all names" : names.joined(separator: ", ")
        printError("observing \(what)\(object.isEmpty ? "" : " about \(object)")")
    }
}

extension NotificationSignal {
    /// For programs: one JSON object.
    static func json(_ signal: NotificationSignal) -> String {
        """
        {"name": \(PropertyListJSON.quoted(signal.name)), "object": \(PropertyListJSON.quoted(signal.object)), \
        "userInfo": \(PropertyListJSON.text(.dictionary(signal.userInfo))), \
        "observers": [\(signal.observers.map { String($0.rawValue) }.joined(separator: ", "))], \
        "poster": \(PropertyListJSON.quoted(signal.poster.rawValue)), "serial": \(signal.serial), \
        "sequence": \(signal.sequence)}
        """
    }

    /// For people: name, object, userInfo.
    static func line(_ signal: NotificationSignal) -> String {
        var parts = [readable(signal.name)]
        if !signal.object.isEmpty { parts.append(readable(signal.object)) }
        if !signal.userInfo.isEmpty { parts.append(PropertyListJSON.text(.dictionary(signal.userInfo))) }
        return parts.joined(separator: "  ")
    }

    /// As it is, unless that could confuse a reader or a terminal.
    static func readable(_ text: String) -> String {
        let isPlain = text.unicodeScalars.allSatisfy {
            !$0.properties.isWhitespace && !PropertyListJSON.isDeceptive($0)
        }
        return isPlain ? text : PropertyListJSON.quoted(text)
    }
}
