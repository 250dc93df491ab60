// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// An observation by a command, with its outcome.
final class Watch: CommandSession.Listener, @unchecked Sendable {
    // Sendable: as its session, on one thread.

    /// The registrations and the filter of the observation.
    struct Scope {
        /// The names; empty for any.
        let names: [String]
        /// The object; empty for any.
        let object: String
        let options: ObserverOptions
        let filter: NotificationFilter
        /// The number of notifications after which the observation ends; nil for no end.
        let wanted: Int?
        /// The details to request from the service.
        let details: Details
    }

    private unowned var session: CommandSession!
    private let scope: Scope
    private let word: String
    private var remaining: Int?
    private var outputs: [any NotificationOutput] = []
    /// Called when the registration is done.
    private var whenBegun: () -> Void = {}
    private var registered: ContinuousClock.Instant?
    private var hasBegun = false
    private var isServed = true
    private var hasLost = false
    /// Whether enough notifications have arrived, and only their outputs are awaited.
    private var isEnding = false

    /// - Parameter word: the activity, which standard error names when it begins.
    init(_ scope: Scope, word: String) {
        self.scope = scope
        self.word = word
        remaining = scope.wanted
    }

    /// - Parameters:
    ///   - outputs: returns the outputs for notifications. They receive the closure to call when they are idle.
    ///   - begun: called when the registration is done.
    func start(
        on session: CommandSession, outputs: (_ becameIdle: @escaping () -> Void) -> [any NotificationOutput],
        begun: @escaping () -> Void = {}
    ) {
        self.session = session
        self.outputs = outputs { [unowned self] in endIfIdle() }
        whenBegun = begun
        session.listener = self
        session.finishWhenInterrupted { [unowned self] in
            tellAbandoned()
            return remaining == nil || isEnding ? outcome : .interrupted
        }
        if !scope.details.isEmpty { session.submit(.details(scope.details)) }
        for name in scope.names.isEmpty ? [""] : scope.names {
            session.submit(
                .register(
                    RegistrationKey(
                        name: name.isEmpty ? nil : ExactText(name),
                        object: scope.object.isEmpty ? nil : ExactText(scope.object), options: scope.options)))
        }
        session.submit(.barrier { [self] isServed in if isServed { begin() } })
    }

    private func begin() {
        guard !session.hasEnded else { return }
        hasBegun = true
        if registered == nil { registered = .now }
        let what = scope.names.isEmpty ? scope.filter.glob ?? "all names" : scope.names.joined(separator: ", ")
        printError("\(word) \(what)\(scope.object.isEmpty ? "" : " about \(scope.object)")")
        whenBegun()
    }

    func received(_ notification: ArrivedNotification) {
        guard !isEnding else { return }
        let now = ContinuousClock.now
        let since = registered ?? now
        registered = since
        let arrival = Arrival(notification, at: WallClock.microseconds(), sinceRegistration: since.duration(to: now))
        guard scope.filter.passes(arrival) else { return }
        for output in outputs { output.take(arrival) }
        guard let left = remaining else { return }
        remaining = left - 1
        if left == 1 {
            isEnding = true
            endIfIdle()
        }
    }

    private func endIfIdle() {
        if isEnding, !outputs.contains(where: \.isBusy) { session.finish(outcome) }
    }

    /// Ends the run before enough notifications have arrived.
    func end(_ code: ExitCode) {
        tellAbandoned()
        session.finish(hasLost ? .lost : code)
    }

    private func tellAbandoned() {
        let count = outputs.reduce(0) { $0 + $1.abandon() }
        guard count > 0 else { return }
        hasLost = true
        printError("carillon: \(count) notifications were not processed by --exec or --popup")
    }

    private var outcome: ExitCode {
        if hasLost || outputs.contains(where: \.hasLost) { return .lost }
        return outputs.contains(where: \.hasFailed) ? .commandFailed : .done
    }

    // MARK: Other events

    func mayHaveMissed(_ gap: Gap) {
        switch gap {
        case .dropped(let count, let reason):
            hasLost = true
            tell(.dropped(count: count, reason: reason), "the service dropped \(count) notifications (\(reason))")
        case .missing(let count):
            hasLost = true
            tell(.missing(count: count), "\(count) notifications are missing")
        case .undecodable(let reason):
            hasLost = true
            tell(.undecodable(reason: reason), "a message of the service could not be decoded: \(reason)")
        // The change of state before it has reported it; this process has no queue of its own.
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
            // If there was a service before, the next one is awaited.
            if !hasBegun { session.fail(.unavailable(reason)) }
        case .nameTaken(let reason):
            if hasBegun { warn(reason) } else { session.fail(.nameTaken(reason)) }
        case .notAnswering(let reason): warn(reason)
        }
    }

    private func warn(_ words: String) { printError("carillon: \(words)") }

    private func tell(_ event: ObservationEvent, _ words: String) {
        printError("carillon: \(words)")
        for output in outputs { output.take(event) }
    }
}
