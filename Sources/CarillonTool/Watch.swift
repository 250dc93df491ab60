import Collections
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// What is observed or monitored, and what came of it.
final class Watch: CommandSession.Listener, @unchecked Sendable {
    // Sendable: as its session, on one thread.
    private unowned var session: CommandSession!
    private let names: [String]
    private let object: String
    private let options: ObserverOptions
    private let format: NotificationFormat
    private let word: String
    private let details: Details
    private var remaining: Int?
    private var hasBegun = false
    private var isServed = true
    private var hasLost = false

    /// - Parameters:
    ///   - object: empty for any.
    ///   - wanted: after so many it ends; nil for never.
    ///   - word: what it does, as standard error says when that has begun.
    ///   - details: what is printed besides.
    init(
        names: [String], object: String, options: ObserverOptions, wanted: Int?, format: NotificationFormat,
        word: String, details: Details
    ) {
        self.names = names
        self.object = object
        self.options = options
        self.format = format
        self.word = word
        self.details = details
        remaining = wanted
    }

    func start(on session: CommandSession) {
        self.session = session
        session.listener = self
        session.finishWhenInterrupted { [unowned self] in remaining == nil ? outcome : .interrupted }
        if !details.isEmpty { session.submit(.details(details)) }
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
        printError("\(word) \(what)\(object.isEmpty ? "" : " about \(object)")")
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
