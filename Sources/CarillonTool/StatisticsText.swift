// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The meaning of the service's counters, as texts for people. `carillon status` shows them.
enum StatisticsText {
    /// The groups in the order in which they are shown, with their titles.
    enum Group: String, CaseIterable {
        case now = "Now"
        case waiting = "Waiting now"
        case traffic = "Since the service started"
        case losses = "Lost or refused since then"
        /// Counters of a later version of the service, which this command does not know.
        case others = "Others"
    }

    /// Returns the group of the counter with this key.
    static func group(of key: String) -> Group {
        switch StatisticsKey(rawValue: key) {
        case .clients, .observers, .observerBytes, .channels, .retained, .retainedBytes, .memoryBytes: .now
        case .queued, .queuedBytes, .intervalBytes, .queuedPosts, .queuedPostBytes, .inFlightBytes, .answerBytes,
            .waitingCallBytes:
            .waiting
        case .posted, .unmatched, .delivered, .coalesced, .expired: .traffic
        case .dropped, .lostPosts, .unretained, .displaced, .refused, .rejected: .losses
        case nil: .others
        }
    }

    /// Whether the counter counts lost notifications or values, so that it is shown as trouble.
    static func isLoss(_ key: String) -> Bool {
        switch StatisticsKey(rawValue: key) {
        case .dropped, .lostPosts, .unretained, .displaced, .rejected: true
        default: false
        }
    }

    /// Returns the meaning of a counter in one line; empty for a counter that this command does not know.
    ///
    /// The texts name the signal `Dropped` and the configuration key `state-bytes`, the maximum size of the state that
    /// the service saves for the next service.
    static func help(of key: String) -> String {
        switch StatisticsKey(rawValue: key) {
        case .clients: "programs that observe, or have reported their state"
        case .observers: "their registered observers"
        case .observerBytes: "their size"
        case .channels: "clients with a channel"
        case .retained: "retained values"
        case .retainedBytes: "their size"
        case .memoryBytes: "the size of everything that the service holds"
        case .queued: "notifications queued for suspended clients and slow consumers"
        case .queuedBytes: "their size"
        case .intervalBytes: "the state of minimum intervals"
        case .queuedPosts: "posts in the queues of their posters (asap, when-idle, at-exit)"
        case .queuedPostBytes: "their size"
        case .inFlightBytes: "the size of unacknowledged messages, also to clients that have left"
        case .answerBytes: "replies queued for callers that do not read"
        case .waitingCallBytes: "calls queued to be served"
        case .posted: "notifications posted"
        case .unmatched: "posts that no observer matched"
        case .delivered: "deliveries, one to each client that matched"
        case .coalesced: "notifications that a newer one replaced before they were sent"
        case .expired: "notifications and values that expired"
        case .dropped: "notifications lost for a client, as Dropped reported"
        case .lostPosts: "queued posts lost in a restart, because of state-bytes"
        case .unretained: "values that exceeded a limit, and were not retained"
        case .displaced: "values of programs that have left, removed to make space for others"
        case .refused: "calls answered with an error"
        case .rejected: "signals that the bus rejected"
        case nil: ""
        }
    }
}
