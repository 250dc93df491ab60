// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore

/// The reply of the D-Bus method Explain, in English sentences: why a client would get a notification now, later, or
/// not at all (B3).
///
/// ``CenterHandlers/explain(_:_:)`` fills in the facts, and ``sentences`` makes the text. The facts are the core's
/// explanation, the policy, and the state of the desktop.
struct ExplanationText {
    let client: ClientName
    /// The name of the notification in question; empty to explain the client's state in general.
    let name: String
    /// The object of that notification; empty for none.
    let object: String
    /// The core's data about the client: matching observers with their fates, queues, losses, suspension.
    let explanation: Explanation
    /// All registrations of the client.
    let registrations: [Registration]
    /// The client's process; nil if it is not known.
    let process: ClientRegistry.Process?
    /// The reason why policy does not let the client observe the name; nil if it does.
    let refusal: String?
    /// The condition under which its application counts as inactive.
    let inactiveWhen: InactiveWhen
    /// The facts about other applications, as far as the caller may see them.
    let others: Others
    /// The present, in microseconds since 1970 in UTC.
    let now: Int64

    /// The information about other applications in the answer.
    enum Others {
        /// The caller may see other applications. `active`: the one with the active window; nil if that is not known.
        case known(active: ActiveApplication?)
        /// The caller may not see other applications, so the answer does not mention them (P2).
        case withheld
    }

    /// The maximum number of observers with a sentence of their own.
    private static let maxObservers = 16
    /// The maximum number of registrations that are compared with the name in search of near misses.
    private static let maxCompared = 1000

    /// The answer about a connection that is no client, or that the caller may not see.
    static func noClient(_ client: ClientName) -> String {
        "\(client) is not a client: it has registered no observer since it connected to the bus, or it has left."
    }

    /// The whole answer: a verdict, then the details that apply.
    var sentences: [String] {
        var all = [verdict]
        if let refusal { all.append("Policy: \(refusal).") }
        all += explanation.matches.prefix(Self.maxObservers).map(sentence)
        if explanation.matches.count > Self.maxObservers {
            all.append("Not listed: \(count(explanation.matches.count - Self.maxObservers, "more matching observer")).")
        }
        if explanation.matches.isEmpty { all += nearMisses }
        all += [suspension, flow, waiting, queuedPosts, values, coalesced, losses].compactMap(\.self)
        return all
    }

    // MARK: Observers

    /// The first sentence: the best fate that the notification has with any of the client's observers.
    private var verdict: String {
        guard !registrations.isEmpty else {
            return "\(clientDescription) has no observer, so it gets nothing."
        }
        guard !name.isEmpty else { return "\(clientDescription) has \(count(registrations.count, "observer"))." }
        let what = "\(quoted(name))\(object.isEmpty ? " without an object" : " of \(quoted(object))")"
        guard let best = explanation.matches.map(\.fate).min(by: { $0.rank < $1.rank }) else {
            return
                "\(clientDescription) would not get \(what): none of its \(count(registrations.count, "observer")) matches."
        }
        switch best {
        case .sent: return "\(clientDescription) would get \(what) now."
        case .waitsForReading: return "\(clientDescription) would get \(what) when it reads."
        case .waitsForInterval:
            return "\(clientDescription) would get \(what), or a newer one, at the end of an interval."
        case .waitsForResuming: return "\(clientDescription) would get \(what) when it is resumed."
        case .dropped: return "\(clientDescription) would not get \(what): it is suspended."
        }
    }

    /// The client with its process.
    private var clientDescription: String {
        process.map { "\(client) (\($0.name), process \($0.id))" } ?? "\(client)"
    }

    /// The fate of the notification with one observer.
    private func sentence(_ match: Explanation.Match) -> String {
        let (options, it) = (match.registration.options, name.isEmpty ? "matching notifications" : "it")
        let subject = "Observer \(match.registration.id.rawValue), \(words(match.registration)),"
        let (behavior, interval) = (options.suspensionBehavior.rawValue, options.minimumInterval)
        switch match.fate {
        case .sent:
            // Without the right to see other clients, the answer does not show whether their messages are due.
            let when =
                switch (others, match.isBehindUrgent) {
                case (.withheld, _): "in its turn"
                case (.known, true):
                    "after notifications of more urgent run-loop modes than \(options.runLoopMode.rawValue)"
                case (.known, false): "now"
                }
            let rate = interval > 0 ? ", but at most one per name and object in \(interval) ms" : ""
            return "\(subject) gets \(it) \(when)\(rate)."
        case .waitsForReading: return "\(subject) gets \(it) when the client reads."
        case .waitsForInterval(let microseconds):
            return "\(subject) gets \(it), or the newest by then, in \(duration(microseconds)): it has a minimum "
                + "interval of \(interval) ms."
        case .waitsForResuming:
            let which =
                options.suspensionBehavior == .coalesce
                ? "only the newest of each name and object is queued until then"
                : "all notifications are queued until then"
            return "\(subject) gets \(it) when the client is resumed: its suspension behavior is \(behavior), so "
                + "\(which)."
        case .dropped:
            return "\(subject) does not get \(it): the client is suspended, and its suspension behavior is "
                + "\(behavior)."
        }
    }

    /// The name and object that an observer has registered for.
    private func words(_ registration: Registration) -> String {
        let name = registration.name.map { "of \(quoted($0))" } ?? "of any name"
        return name + (registration.object.map { " from \(quoted($0))" } ?? " from any object")
    }

    /// Hints about the observers that almost match the name and object, for the case that none matches.
    private var nearMisses: [String] {
        var sentences: [String] = []
        for registration in registrations.prefix(Self.maxCompared) {
            guard sentences.count < Self.maxObservers else { break }
            guard let hint = hint(registration) else { continue }
            sentences.append(
                "Observer \(registration.id.rawValue), \(words(registration)), does not match: \(hint).")
        }
        return sentences
    }

    /// The reason why a registration does not match, if its name or object is close to the wanted one; otherwise nil.
    private func hint(_ registration: Registration) -> String? {
        guard let wanted = registration.name, !wanted.utf8.elementsEqual(name.utf8) else {
            // The name matches, so the object differs.
            guard let wanted = registration.object else { return nil }
            if object.isEmpty { return "it requires an object, and the notification has none" }
            return isNearMatch(wanted, object)
                ? "the object differs in case or white space" : "it observes another object"
        }
        if isNearMatch(wanted, name) { return "the name differs in case or white space" }
        if isPattern(wanted) {
            return "names are compared whole, and this one looks like a pattern; an empty name observes all names"
        }
        return nil
    }

    /// Whether texts differ only in white space and the case of ASCII letters. Takes linear time.
    private func isNearMatch(_ one: String, _ other: String) -> Bool {
        func folded(_ text: String) -> some Sequence<UInt8> {
            text.utf8.lazy.filter { $0 > UInt8(ascii: " ") }
                .map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
        }
        return folded(one).elementsEqual(folded(other))
    }

    /// Whether the text looks like a shell pattern or a prefix, and the name begins with its literal part. The pattern
    /// is not matched: some patterns take exponential time.
    private func isPattern(_ text: String) -> Bool {
        let isWildcard = { (byte: UInt8) in "*?[".utf8.contains(byte) }
        guard text.utf8.last == UInt8(ascii: ".") || text.utf8.contains(where: isWildcard) else { return false }
        return name.utf8.starts(with: text.utf8.prefix { !isWildcard($0) })
    }

    // MARK: Client

    /// The suspension of the client, and the way to end it; nil if it is not suspended.
    private var suspension: String? {
        let since = explanation.suspensionTime.map { " for \(duration(now - $0))" } ?? ""
        guard explanation.status.isSuspended else {
            guard let override = explanation.override else { return nil }
            return "It counts as active in any case: \(author(override)) overrides its suspension. 'carillon follow "
                + "\(client)' ends the override."
        }
        let begin = "It has been suspended\(since): "
        switch explanation.status.cause {
        case .explicit:
            return begin + "it requested this. It is resumed when it calls SetSuspended with false, or FollowActivity."
        case .override:
            return begin + (explanation.override.map(author) ?? "somebody")
                + " suspended it for a test. 'carillon follow \(client)' ends the override."
        case .activity, .none:
            let (what, end) =
                switch inactiveWhen {
                case .unfocused: ("its application is not active\(activeWindow)", "active")
                case .hidden: ("no window of its application is visible", "shown")
                }
            return begin + what + ". It is resumed when a window of its own is \(end); 'carillon resume \(client)' "
                + "resumes it for a test."
        }
    }

    /// The program that overrides the suspension; "somebody" if the caller may not see it.
    private func author(_ override: SuspensionOverride) -> String {
        guard let author = override.author, case .known = others else { return "somebody" }
        let process = override.identity?.process.map { "\($0), " } ?? ""
        return override.identity?.processID.map { "\(process)process \($0)," } ?? "\(author)"
    }

    /// The application with the active window, as a part of a sentence; empty if the caller may not see it.
    private var activeWindow: String {
        guard case .known(let active) = others else { return "" }
        return switch active {
        case .process(let id, let name)?:
            "; the active window is that of \(name.isEmpty ? "" : "\(name), ")process \(id)"
        case .application(let id)?: "; the active window is that of the application \(id)"
        case .unknown?: "; the active window is another one"
        case .nobody?: "; no window is active, or the screen is locked"
        case nil: "; no window is known to be active"
        }
    }

    /// The reason why the client is sent nothing more at the moment; nil if it reads.
    private var flow: String? {
        let messages = count(explanation.status.unconfirmed, "message")
        switch explanation.status.flow {
        case .open: return nil
        case .waiting:
            return "It has not read all: \(messages) to it \(explanation.status.unconfirmed == 1 ? "is" : "are") not "
                + "acknowledged. It reads more slowly than others post, or its process is stopped or busy, or does not "
                + "dispatch its connection. If 'delivered' grows in 'carillon clients', it only reads slowly. It gets "
                + "the rest when it reads."
        case .unanswered:
            return "It has never answered org.freedesktop.DBus.Peer.Ping: its D-Bus library can't do so, or it "
                + "stopped early. The service sends it more as long as its socket shows that it reads."
        }
    }

    /// The number of notifications that wait for the client in the service.
    private var waiting: String? {
        let waiting = explanation.waiting
        let sum = waiting.due + waiting.held + waiting.throttled
        guard sum > 0 else { return nil }
        let parts = [
            (waiting.due, explanation.status.flow == .open ? "for its turn" : "until it reads"),
            (waiting.held, "until it is resumed"),
            (waiting.throttled, "for the end of an interval"),
        ]
        let kind = name.isEmpty ? "" : " of this name and object"
        return "\(count(sum, "notification"))\(kind) \(sum == 1 ? "waits" : "wait") for it: "
            + parts.filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }.joined(separator: ", ") + "."
    }

    /// The number of queued posts of the name and object that the service has not made yet.
    private var queuedPosts: String? {
        // The posts belong to other applications, which a sandbox may not see (P2).
        if case .withheld = others { return nil }
        let styles = PostingStyle.allCases.compactMap { style in
            explanation.queuedPosts[style].map { "\($0) \(style.rawValue)" }
        }
        guard !styles.isEmpty else { return nil }
        let sum = explanation.queuedPosts.values.reduce(0, +)
        return "\(count(sum, "post")) of this name and object still \(sum == 1 ? "waits" : "wait") in the queues of "
            + "their posters: \(styles.joined(separator: ", "))."
    }

    /// The retained values that observers of the client are still to receive.
    private var values: String? {
        guard explanation.pendingReplays > 0 else { return nil }
        return "Retained values are still to be sent to \(count(explanation.pendingReplays, "observer")) of it."
    }

    /// The number of queued notifications that newer ones replaced.
    private var coalesced: String? {
        guard explanation.coalesced > 0 else { return nil }
        // The count is of all its notifications: there is no count per name.
        return "So far newer notifications of the same name and object replaced "
            + "\(count(Int(clamping: explanation.coalesced), "notification")) in its queue, counted over all names."
    }

    /// The number of lost notifications, with the last reason.
    private var losses: String? {
        let lost = explanation.status.dropped
        guard lost > 0 else { return nil }
        let reason = explanation.lastLoss.map { ", last for \($0.rawValue)" } ?? ""
        let known =
            explanation.isLossReported ? "The signal Dropped reported this" : "Dropped will report this when it reads"
        return "\(count(Int(clamping: lost), "notification")) for it \(lost == 1 ? "was" : "were") lost\(reason). "
            + "\(known)."
    }

    // MARK: Formatting

    private func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }

    private func duration(_ signed: Int64) -> String {
        // The clock may have been set back since.
        let microseconds = max(0, signed)
        return switch microseconds {
        case ..<1_000_000: "\(microseconds / 1000) ms"
        case ..<120_000_000: "\(microseconds / 1_000_000) s"
        case ..<7_200_000_000: "\(microseconds / 60_000_000) minutes"
        default: "\(microseconds / 3_600_000_000) hours"
        }
    }

    /// Quotes a text, shortened to 200 characters.
    private func quoted(_ text: String) -> String { "'\(text.prefix(200))\(text.count > 200 ? "…" : "")'" }
}

extension Explanation.Fate {
    /// The rank of a fate, 0 for the best. The best fate with any observer counts for the client.
    fileprivate var rank: Int {
        switch self {
        case .sent: 0
        case .waitsForReading: 1
        case .waitsForInterval: 2
        case .waitsForResuming: 3
        case .dropped: 4
        }
    }
}
