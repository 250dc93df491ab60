// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The meaning of the service's counters, as texts for people.
enum StatisticsText {
    /// The groups in the order in which they are shown, with their titles.
    enum Group: String, CaseIterable {
        case now = "Now"
        case waiting = "Waiting now"
        case traffic = "Since the service started"
        case losses = "Lost or refused since then"
        /// The counters of a later service.
        case others = "Others"
    }

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

    /// Whether the counter counts lost notifications.
    static func isLoss(_ key: String) -> Bool {
        switch StatisticsKey(rawValue: key) {
        case .dropped, .lostPosts, .unretained, .displaced, .rejected: true
        default: false
        }
    }

    /// Returns one line; empty for a counter that this command does not know.
    static func help(of key: String) -> String {
        switch StatisticsKey(rawValue: key) {
        case .clients: "programs that observe, or have said something of themselves"
        case .observers: "observers that they registered"
        case .observerBytes: "their size"
        case .channels: "clients with a channel"
        case .retained: "retained values"
        case .retainedBytes: "their size"
        case .memoryBytes: "the size of everything that is kept, and of what waits"
        case .queued: "notifications that wait for clients: suspended, or slow to read"
        case .queuedBytes: "their size"
        case .intervalBytes: "the state of minimum intervals"
        case .queuedPosts: "posts that wait in the queues of their posters (asap, when-idle, at-exit)"
        case .queuedPostBytes: "their size"
        case .inFlightBytes: "sent, and not confirmed by those who were to read it, some of whom may have left"
        case .answerBytes: "replies that wait for callers that do not read"
        case .waitingCallBytes: "calls that wait to be served"
        case .posted: "notifications posted"
        case .unmatched: "posts that no observer matched"
        case .delivered: "deliveries, one to each client that matched"
        case .coalesced: "notifications that a newer one replaced before they were sent"
        case .expired: "notifications and values that outlived their time"
        case .dropped: "notifications that a client lost; Dropped told it"
        case .lostPosts: "queued posts that a restart had no room for"
        case .unretained: "values that found no room"
        case .displaced: "values of programs that have left, removed to make room"
        case .refused: "calls answered with an error"
        case .rejected: "signals that the bus did not carry"
        case nil: ""
        }
    }
}
