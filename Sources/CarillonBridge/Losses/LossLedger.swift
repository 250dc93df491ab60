// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The reason why a notification did not arrive.
enum LossReason: String, CaseIterable {
    /// It never arrived from the broker: a number is missing.
    case missing = "missing"
    /// No MQTT topic can have the name: it has too many parts, or is too long.
    case noTopic = "no-topic"
    /// The queue for the broker was full.
    case queueFull = "queue-full"
    /// The broker, or the session's service, rejected it.
    case refused = "refused"
    case undecodable = "undecodable"
    /// An intermediary speaks MQTT 3.1.1, and removed the properties that reveal duplicates and losses.
    case stripped = "stripped"
    /// The service ended during the post: it may have arrived, and is not repeated.
    case uncertain = "uncertain"
    /// The session's service lost it on its way to the bridge.
    case notSeen = "not-seen"
    /// The broker had not acknowledged it when the bridge was given another realm, host or user. It may have arrived if
    /// it was sent.
    case reconfigured = "reconfigured"
}

/// The losses by name, until they are announced. No loss is silent, and a flood of losses is no flood of announcements.
struct LossLedger {
    /// The losses that are announced together.
    struct Entry: Hashable {
        /// The origin of the lost notifications.
        let origin: Origin
        /// Nil if more names are lost than the limit distinguishes.
        let name: ExactText?
        let reason: LossReason
    }

    /// The maximum number of pending entries.
    static let maxEntries = 256

    /// The origin that stands for all origins beyond the limit.
    static let several = Origin(host: "*", user: "*")!

    private(set) var pending: [Entry: UInt64] = [:]
    /// Losses that are announced, and not confirmed by the service.
    private var announced: [Entry: UInt64] = [:]
    /// Losses that have to be announced again: they are in the log already.
    private var again: [Entry: UInt64] = [:]
    /// The total of outgoing losses.
    private(set) var outwards: UInt64 = 0
    /// The total of incoming losses.
    private(set) var inwards: UInt64 = 0

    enum Direction { case outwards, inwards }

    mutating func lost(
        _ count: UInt64 = 1, of name: String?, from origin: Origin, because reason: LossReason, _ direction: Direction
    ) {
        switch direction {
        case .outwards: outwards.addLosses(count)
        case .inwards: inwards.addLosses(count)
        }
        let entry = Entry(origin: origin, name: name.map(ExactText.init), reason: reason)
        let hasRoom = pending.count < Self.maxEntries && announced.count < 2 * Self.maxEntries
        let isKnown = pending[entry] != nil || hasRoom
        pending[isKnown ? entry : Entry(origin: Self.several, name: nil, reason: reason), default: 0]
            .addLosses(count)
    }

    /// Restores losses of an earlier bridge of the session, which are counted already.
    mutating func restore(_ saved: [Entry: UInt64]) { pending.merge(saved) { $0.addingLosses($1) } }

    /// All losses that no observer may know of, for the next bridge.
    var unannounced: [Entry: UInt64] { pending.merging(announced) { $0.addingLosses($1) } }

    /// Takes the losses to announce now. ``answered(_:_:isTaken:)`` follows for each.
    ///
    /// - Returns: each loss, with whether part of it is announced for the first time.
    mutating func takePending() -> [(entry: Entry, count: UInt64, isNew: Bool)] {
        defer { (pending, again) = ([:], [:]) }
        announced.merge(pending) { $0.addingLosses($1) }
        return pending.map { ($0.key, $0.value, again[$0.key] != $0.value) }.sorted {
            ($0.entry.origin.text, $0.entry.name?.text ?? "", $0.entry.reason.rawValue)
                < ($1.entry.origin.text, $1.entry.name?.text ?? "", $1.entry.reason.rawValue)
        }
    }

    /// Notes the service's answer to an announcement, or that there will be none.
    mutating func answered(_ entry: Entry, _ count: UInt64, isTaken: Bool) {
        let left = announced[entry, default: 0]
        announced[entry] = left > count ? left - count : nil
        guard !isTaken else { return }
        pending[entry, default: 0].addLosses(count)
        again[entry, default: 0].addLosses(count)
    }
}

extension UInt64 {
    /// Returns the sum, at most the maximum: senders choose the numbers of messages, so that the sum may be anything.
    func addingLosses(_ count: UInt64) -> UInt64 {
        let (sum, isTooMuch) = addingReportingOverflow(count)
        return isTooMuch ? .max : sum
    }

    mutating func addLosses(_ count: UInt64) { self = addingLosses(count) }
}
