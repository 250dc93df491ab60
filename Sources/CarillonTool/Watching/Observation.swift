// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The observation of `carillon observe`, `monitor` and `wait`, from the registration of observers to the exit code.
///
/// It registers the observers of its ``Scope``, and passes each notification that the filter accepts to its outputs. It
/// ends after the wanted number of notifications, when all outputs are idle; a timeout or a signal ends it before.
/// Losses are reported on standard error and set the exit code.
final class Observation: CommandSession.Listener, @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

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
    /// The activity, such as "observing", which standard error names when it begins.
    private let activity: String
    /// The number of notifications after which the observation ends; nil for no end.
    private var remaining: Int?
    private var outputs: [any NotificationOutput] = []
    /// Called when the service has confirmed the registration.
    private var whenBegun: () -> Void = {}
    /// The time of the registration, or of the first notification if that arrived before the confirmation.
    private var registered: ContinuousClock.Instant?
    /// Whether the service has confirmed the registration.
    private var hasBegun = false
    /// Whether a service is connected, from the confirmation on. Its changes are reported then.
    private var isServiceConnected = true
    /// Whether notifications were lost on their way to this process, or were discarded from the queues of outputs.
    private var hasLost = false
    /// Whether the wanted number of notifications has arrived, and only the outputs are still busy.
    private var isEnding = false

    /// - Parameter activity: the activity, such as "observing", which standard error names when it begins.
    init(_ scope: Scope, activity: String) {
        self.scope = scope
        self.activity = activity
        remaining = scope.wanted
    }

    /// Submits the registrations.
    ///
    /// - Parameters:
    ///   - outputs: returns the outputs for notifications. It receives the closure that an output calls when it becomes
    ///     idle.
    ///   - begun: called when the service has confirmed the registration.
    func start(
        on session: CommandSession, outputs: (_ onIdle: @escaping () -> Void) -> [any NotificationOutput],
        begun: @escaping () -> Void = {}
    ) {
        self.session = session
        self.outputs = outputs { [unowned self] in endIfIdle() }
        whenBegun = begun
        session.listener = self
        session.finishWhenInterrupted { [unowned self] in
            reportAbandoned()
            // Without a wanted number a signal is the only end of the run, so it is no interruption.
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
        // The barrier completes when the service has processed all registrations. Its value is false if there is no
        // service, which `stateChanged` reports.
        session.submit(.barrier { [self] isServiceConnected in if isServiceConnected { begin() } })
    }

    /// Reports the beginning, after the confirmation of the registration.
    private func begin() {
        guard !session.hasEnded else { return }
        hasBegun = true
        if registered == nil { registered = .now }
        let what = scope.names.isEmpty ? scope.filter.glob ?? "all names" : scope.names.joined(separator: ", ")
        printError("\(activity) \(what)\(scope.object.isEmpty ? "" : " about \(scope.object)")")
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

    /// Ends the run if enough notifications have arrived and no output is busy.
    private func endIfIdle() {
        if isEnding, !outputs.contains(where: \.isBusy) { session.finish(outcome) }
    }

    /// Ends the run before the wanted number of notifications has arrived. A loss (``hasLost``) takes precedence over
    /// the given code.
    func end(_ code: ExitCode) {
        reportAbandoned()
        session.finish(isAnythingLost ? .lost : code)
    }

    /// Discards queued notifications of the outputs, and reports them as a loss.
    private func reportAbandoned() {
        let count = outputs.reduce(0) { $0 + $1.abandon() }
        guard count > 0 else { return }
        hasLost = true
        printError("carillon: \(count) notifications were not processed by --exec or --popup")
    }

    /// Whether notifications were lost, on the way or by an output.
    private var isAnythingLost: Bool { hasLost || outputs.contains(where: \.hasLost) }

    /// The exit code of a run that has received enough notifications.
    private var outcome: ExitCode {
        if isAnythingLost { return .lost }
        return outputs.contains(where: \.hasFailed) ? .commandFailed : .done
    }

    // MARK: Other events

    func mayHaveMissed(_ gap: Gap) {
        switch gap {
        case .dropped(let count, let reason):
            hasLost = true
            report(.dropped(count: count, reason: reason), "the service dropped \(count) notifications (\(reason))")
        case .missing(let count):
            hasLost = true
            report(.missing(count: count), "\(count) notifications are missing")
        case .undecodable(let reason):
            hasLost = true
            report(.undecodable(reason: reason), "a message of the service could not be decoded: \(reason)")
        // `stateChanged` has reported a change of the service before. An overflow can't occur: notifications wait in no
        // queue of this process.
        case .serviceChanged, .overflow: break
        }
    }

    func stateChanged(_ state: ConnectionState) {
        switch state {
        case .connecting, .disconnected:
            guard hasBegun, isServiceConnected else { return }
            isServiceConnected = false
            report(.serviceGone, "the service went away; notifications may be missing")
        case .connected:
            guard hasBegun, !isServiceConnected else { return }
            isServiceConnected = true
            report(.serviceBack, "the service is back")
        case .serviceUnavailable(let reason):
            // After the beginning the command waits for the next service instead.
            if !hasBegun { session.fail(.unavailable(reason)) }
        case .nameTaken(let reason):
            if hasBegun { warn(reason) } else { session.fail(.nameTaken(reason)) }
        case .notAnswering(let reason): warn(reason)
        }
    }

    private func warn(_ words: String) { printError("carillon: \(words)") }

    /// Reports an event on standard error and to the outputs.
    private func report(_ event: ObservationEvent, _ words: String) {
        printError("carillon: \(words)")
        for output in outputs { output.take(event) }
    }
}
