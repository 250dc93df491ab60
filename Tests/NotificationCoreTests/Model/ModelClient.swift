// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A client in the model.
final class ModelClient {
    struct Observer {
        let id: UInt64
        let name: Int
        let object: Int
        let behavior: SuspensionBehavior
        let mode: RunLoopMode
        var isMonitor = false

        func matches(name postedName: Int, object postedObject: Int) -> Bool {
            // Table C1. Nothing but zero is "any"; a post without object matches only those of any object.
            (name == 0 || name == postedName) && (object == 0 || object == postedObject)
        }
    }

    struct Waiting {
        let post: Post
        var observers: [Observer]
        /// How urgently it goes out as soon as the client reads; nil while it is held because the client is suspended.
        var lane: DeliveryLane?
        /// Also the numbers of its observers, and of those for which a newer one takes its place, where they are lists, and
        /// what finds it for these.
        var bytes: Int {
            func list(_ count: Int) -> Int { count > 1 ? 8 * count : 0 }
            let coalescing = lane == nil ? observers.filter { $0.behavior == .coalesce }.count : 0
            return ModelClient.bytes(of: post) + list(observers.count) + list(coalescing) + (coalescing > 0 ? 72 : 0)
        }

        init(_ post: Post, for observers: [Observer], in lane: DeliveryLane?) {
            self.post = post
            self.observers = observers
            self.lane = lane
        }
    }

    let number: Int
    /// Whether it wants what is due together (F1).
    var batches = false
    var observers: [Observer] = []
    var word: Bool?
    /// What somebody else said.
    var override: Bool?
    /// What the desktop said last, and what counts: inactivity only after its moment.
    var activity = Activity.unknown
    var counts = Activity.unknown
    /// How many moments of inactivity began. Only the end of the last one means something.
    var moments = 0
    /// In the order in which it was posted.
    var waiting: [Waiting] = []
    var sequence: UInt64 = 0
    var delivered: UInt64 = 0
    var dropped: UInt64 = 0
    var lost: (count: UInt64, observers: Set<UInt64>, reason: DropReason)?

    /// The probes that were sent and not answered, oldest first; true for those that do not count any more.
    var probes: [Bool] = []
    var messagesSinceProbe = 0
    var bytesSinceProbe = 0
    var hasAnswered = false
    /// Whether it is being found out in another way whether it reads.
    var isWitnessed = false
    /// What it knows of its suspension.
    /// Nil when a restart came before it could be told.
    var told: (isSuspended: Bool, cause: SuspensionCause)? = (false, .none)
    /// Probes that have to be confirmed until it has surely heard that.
    var probesBehindWord = 0
    /// One of its probes is confirmed.
    func confirm() { probesBehindWord = max(0, probesBehindWord - 1) }
    /// Whether a later process has to tell it, as it may not know.
    var isWordOwed = false
    var isSuspensionAnnounced: Bool { told?.isSuspended == isSuspended && told?.cause == cause }

    init(_ number: Int) {
        self.number = number
    }

    var isAutomationOn = true
    var isSuspended: Bool { override ?? word ?? (isAutomationOn && counts == .inactive) }
    var cause: SuspensionCause {
        if override != nil { return .override }
        if word != nil { return .explicit }
        return isAutomationOn && counts != .unknown ? .activity : .none
    }
    /// A4: at most two windows are unanswered.
    var reads: Bool { probes.filter { !$0 }.count < 2 }
    /// Whether something is for it that it would get if it read.
    var hasPendingMessages: Bool {
        waiting.contains { $0.lane != nil } || lost != nil || !isSuspensionAnnounced
    }
    var holds: Bool { waiting.contains { $0.lane == nil } }
    func first(in lane: DeliveryLane) -> Int? { waiting.firstIndex { $0.lane == lane } }
    var waitingBytes: Int { waiting.reduce(0) { $0 + $1.bytes } }

    /// What a notification counts: its texts, its userInfo, and what keeping one costs.
    static func bytes(of post: Post) -> Int { contentBytes(of: post) + overhead }

    /// The same of a post that waits in its poster's queue.
    static func queuedBytes(of post: Post) -> Int { contentBytes(of: post) + overheadOfQueued }

    private static func contentBytes(of post: Post) -> Int {
        let origin = Step.origins[post.origin].map { Identity(origin: $0).byteCount } ?? 0
        return Step.texts[post.name].utf8.count + Step.texts[post.object].utf8.count + post.bytes + origin
    }

    /// Measured, so that the model does not say it once more: one empty notification for a suspended client, whose place
    /// no newer one takes.
    private static let overhead: Int = {
        let scenario = Scenario()
        _ = try? scenario.observe(one, "", "", .hold)
        try? scenario.suspend(one)
        _ = try? scenario.post("A")
        return Int(scenario.statistics.queuedBytes) - 1
    }()

    private static let overheadOfQueued: Int = {
        let scenario = Scenario()
        _ = try? scenario.post("A", style: .whenIdle)
        return Int(scenario.statistics.queuedPostBytes) - 1
    }()
}
