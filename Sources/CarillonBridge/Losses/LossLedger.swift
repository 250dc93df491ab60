// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The reason of a loss, as the announcement and the saved state name it.
enum LossReason: String, CaseIterable {
    /// The message never arrived from the broker: its sequence number is missing.
    case missing = "missing"
    /// No MQTT topic can represent the name: it has too many parts, or is too long.
    case noTopic = "no-topic"
    /// The queue for the broker was full, and dropped the message.
    case queueFull = "queue-full"
    /// The broker, the bridge or the session's service refused the message.
    case refused = "refused"
    /// The content of a message can't be read.
    case undecodable = "undecodable"
    /// An intermediary uses MQTT 3.1.1 and has removed the properties that reveal duplicates and losses.
    case stripped = "stripped"
    /// The service ended during the post. The notification may have been delivered, and is not posted again.
    case uncertain = "uncertain"
    /// The session's service dropped the notification before it reached the bridge.
    case notSeen = "not-seen"
    /// The broker had not acknowledged the message when the bridge got another realm, host or user. If it was sent, it
    /// may have arrived.
    case reconfigured = "reconfigured"
}

/// The losses that are not announced yet, by origin, name and reason. ``LossAnnouncer`` uses it. Every loss is counted.
/// Losses with the same entry are merged, and the number of entries is limited, so that a flood of losses does not
/// cause a flood of announcements.
struct LossLedger {
    /// Losses that are announced together.
    struct Entry: Hashable {
        /// The origin of the lost notifications.
        let origin: Origin
        /// The name; nil if it is unknown, and for several names beyond the limit.
        let name: ExactText?
        let reason: LossReason
    }

    /// The maximum number of pending entries.
    static let maxEntries = 256

    /// The origin that stands for several origins beyond the limit.
    static let several = Origin(host: "*", user: "*")!

    /// The losses to announce, with their numbers.
    private(set) var pending: [Entry: UInt64] = [:]
    /// The losses that were posted and are not confirmed by the service.
    private var announced: [Entry: UInt64] = [:]
    /// The part of `pending` whose announcement has failed before: these losses are in the log already.
    private var again: [Entry: UInt64] = [:]
    /// The total of outgoing losses.
    private(set) var outwards: UInt64 = 0
    /// The total of incoming losses.
    private(set) var inwards: UInt64 = 0

    /// The direction of the lost messages: from this session to the broker, or from the broker.
    enum Direction { case outwards, inwards }

    /// Counts losses.
    mutating func lost(
        _ count: UInt64 = 1, of name: String?, from origin: Origin, because reason: LossReason, _ direction: Direction
    ) {
        switch direction {
        case .outwards: outwards.addLosses(count)
        case .inwards: inwards.addLosses(count)
        }
        let entry = Entry(origin: origin, name: name.map(ExactText.init), reason: reason)
        // Announcements without an answer return to `pending` if they fail, so their number is limited as well.
        let hasSpace = pending.count < Self.maxEntries && announced.count < 2 * Self.maxEntries
        let isKnown = pending[entry] != nil || hasSpace
        pending[isKnown ? entry : Entry(origin: Self.several, name: nil, reason: reason), default: 0]
            .addLosses(count)
    }

    /// Restores losses of an earlier bridge process. They do not count for the totals.
    mutating func restore(_ saved: [Entry: UInt64]) { pending.merge(saved) { $0.addingLosses($1) } }

    /// All losses whose announcement is not confirmed, for the next bridge.
    var unannounced: [Entry: UInt64] { pending.merging(announced) { $0.addingLosses($1) } }

    /// Returns the losses to announce now. The caller reports the outcome of each by ``answered(_:_:isTaken:)``.
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

    /// Handles the outcome of an announcement.
    ///
    /// - Parameter isTaken: whether the service has accepted it. Otherwise it is pending again.
    mutating func answered(_ entry: Entry, _ count: UInt64, isTaken: Bool) {
        let left = announced[entry, default: 0]
        announced[entry] = left > count ? left - count : nil
        guard !isTaken else { return }
        pending[entry, default: 0].addLosses(count)
        again[entry, default: 0].addLosses(count)
    }
}

extension UInt64 {
    /// Returns the sum, at most the maximum. Senders choose the sequence numbers, so the number of missing messages may
    /// be anything.
    func addingLosses(_ count: UInt64) -> UInt64 {
        let (sum, isTooMuch) = addingReportingOverflow(count)
        return isTooMuch ? .max : sum
    }

    /// Adds a number, at most to the maximum.
    mutating func addLosses(_ count: UInt64) { self = addingLosses(count) }
}
