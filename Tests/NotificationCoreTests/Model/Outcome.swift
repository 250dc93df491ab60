// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// What an event was answered with.
enum Answer: Equatable {
    case nothing
    /// A new observer, or a count of receivers or removed observers; several for a burst of posts.
    case numbers([UInt64])
    case refused(CenterError)
}

/// Something that is done for a client because of an event.
enum Outcome: Equatable {
    case delivered(Post, observers: [UInt64], sequence: UInt64)
    /// The next so many are delivered in one message.
    case together(Int)
    case dropped(UInt64, observers: [UInt64], DropReason, sequence: UInt64)
    case suspensionChanged(Bool, SuspensionCause)
    case probed
    case backlogProbed
    case momentBegan(milliseconds: Int)
    case overflowed(DropReason)
    case watched
    case forgotten
}

/// A post as it was made.
struct Post: Equatable {
    let serial: UInt64
    let name: Int
    let object: Int
    let bytes: Int
    let poster: Int
    var origin = 0
}

/// All that is done because of an event, for each client in its order. What the client sees, what is noted about it, and
/// its timers have an order each, and none among them.
struct Outcomes: Equatable {
    private(set) var seen: [[Outcome]] = Array(repeating: [], count: Step.clients.count)
    private(set) var noted: [[Outcome]] = Array(repeating: [], count: Step.clients.count)
    private(set) var timed: [[Outcome]] = Array(repeating: [], count: Step.clients.count)

    mutating func append(_ outcome: Outcome, for client: Int) {
        switch outcome {
        case .delivered, .together, .dropped, .suspensionChanged, .probed: seen[client].append(outcome)
        case .overflowed, .watched, .forgotten: noted[client].append(outcome)
        case .backlogProbed, .momentBegan: timed[client].append(outcome)
        }
    }
}

/// All that can be looked at from outside.
struct View: Equatable {
    struct Client: Equatable {
        var isSuspended: Bool
        var cause: SuspensionCause
        var observers: Int
        var queued: Int
        var delivered: UInt64
        var dropped: UInt64
    }

    var clients: [Client?] = Array(repeating: nil, count: Step.clients.count)
    var posted: UInt64 = 0
    var unmatched: UInt64 = 0
    var delivered: UInt64 = 0
    var dropped: UInt64 = 0
    var coalesced: UInt64 = 0
    var queued: UInt64 = 0
    var queuedBytes: UInt64 = 0
    var queuedPosts: UInt64 = 0
    var queuedPostBytes: UInt64 = 0
    var clientCount: UInt64 = 0
    var observerCount: UInt64 = 0
}
