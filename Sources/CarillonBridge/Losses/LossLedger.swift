// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Why a notification did not come where it should have.
enum LossReason: String, CaseIterable {
    /// It never came from the broker: a number is missing.
    case missing = "missing"
    /// No MQTT topic can have the name: it has too many parts, or is too long.
    case noTopic = "no-topic"
    /// More waited for the broker than may.
    case queueFull = "queue-full"
    /// The broker, or the session's service, did not take it.
    case refused = "refused"
    case undecodable = "undecodable"
    /// Something on the way speaks MQTT 3.1.1, and took away what tells duplicates and losses.
    case stripped = "stripped"
    /// The service ended while it was posted: it may have come, and is not repeated.
    case uncertain = "uncertain"
    /// The session's service lost it on its way to the bridge.
    case notSeen = "not-seen"
    /// The broker had not confirmed it when the bridge was given another realm, host or user. It may
    /// have arrived if it was sent.
    case reconfigured = "reconfigured"
}

/// What is lost, by name, until it is announced: nothing is lost silently, and a flood of losses is no flood of
/// announcements.
struct LossLedger {
    /// What is told together.
    struct Entry: Hashable {
        /// Where it came from.
        let origin: Origin
        /// Nil where more names are lost than are told apart.
        let name: ExactText?
        let reason: LossReason
    }

    /// Entries that are told apart at once.
    static let maxEntries = 256

    /// Stands for more origins than are told apart.
    static let several = Origin(host: "*", user: "*")!

    private(set) var pending: [Entry: UInt64] = [:]
    /// Losses that were announced, and not confirmed by the service.
    private var announced: [Entry: UInt64] = [:]
    /// Losses that have to be announced once more: they are in the log already.
    private var again: [Entry: UInt64] = [:]
    /// Ever, of what went out.
    private(set) var outwards: UInt64 = 0
    /// Ever, of what came in.
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

    /// Losses of an earlier bridge of the session, which are counted already.
    mutating func restore(_ saved: [Entry: UInt64]) { pending.merge(saved) { $0.addingLosses($1) } }

    /// All losses that no observer may know of, for the next bridge.
    var unannounced: [Entry: UInt64] { pending.merging(announced) { $0.addingLosses($1) } }

    /// The losses that are to be announced now. ``answered(_:_:isTaken:)`` follows for each.
    ///
    /// - Returns: with whether some of it is announced for the first time.
    mutating func takePending() -> [(entry: Entry, count: UInt64, isNew: Bool)] {
        defer { (pending, again) = ([:], [:]) }
        announced.merge(pending) { $0.addingLosses($1) }
        return pending.map { ($0.key, $0.value, again[$0.key] != $0.value) }.sorted {
            ($0.entry.origin.text, $0.entry.name?.text ?? "", $0.entry.reason.rawValue)
                < ($1.entry.origin.text, $1.entry.name?.text ?? "", $1.entry.reason.rawValue)
        }
    }

    /// The service has answered an announcement, or will not.
    mutating func answered(_ entry: Entry, _ count: UInt64, isTaken: Bool) {
        let left = announced[entry, default: 0]
        announced[entry] = left > count ? left - count : nil
        guard !isTaken else { return }
        pending[entry, default: 0].addLosses(count)
        again[entry, default: 0].addLosses(count)
    }
}

extension UInt64 {
    /// The number of a message is its sender's word: the sum of losses may be anything.
    func addingLosses(_ count: UInt64) -> UInt64 {
        let (sum, isTooMuch) = addingReportingOverflow(count)
        return isTooMuch ? .max : sum
    }

    mutating func addLosses(_ count: UInt64) { self = addingLosses(count) }
}
