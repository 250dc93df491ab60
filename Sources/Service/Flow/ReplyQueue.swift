// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The queue of answers to callers that do not read them, one queue for each connection (A4, E4). Answers are replies
/// to calls on the bus, and outcomes of posts on channels.
///
/// The core counts each answer in the window of its receiver, and decides whether it is sent at once. A kept answer
/// waits here until the core's effect ``Effect/sendAnswer(_:)`` or ``Effect/sendReply(_:)`` sends it. The core knows
/// only the sizes of kept answers, in the same order. Replies reach this queue through a bus object that wraps the real
/// one (``way(to:)``), so that the handlers of calls need not know it.
///
/// Threads: only that of the service's main loop.
final class ReplyQueue {
    /// Asks the core when to send a reply of the given size, in bytes, to a connection.
    var turn: ((UniqueName, Int) -> DistributedCenter.ReplyTurn)!
    /// Passes the core the positions of the answers to a connection that became tombstones, counted from the end of the
    /// queue; the last answer has position 0.
    var onTombstones: ((UniqueName, [Int]) -> Void)!
    /// The answers that wait, by connection.
    private var kept: [UniqueName: KeptAnswers] = [:]

    /// A reply that waits.
    private final class Reply {
        let message: Message
        /// The connection to send it on.
        let bus: any MessageBus
        /// Called when the reply has been sent.
        var whenSent: (() -> Void)?

        init(_ message: Message, to bus: any MessageBus) {
            self.message = message
            self.bus = bus
        }
    }

    /// An entry of a connection's queue.
    private enum Answer {
        case reply(Reply)
        /// The outcome of a post on a channel.
        case outcome(ChannelAnswer)
        /// A tombstone: an outcome that was sent without the core because its channel ends. It keeps the order equal to
        /// that of the core, and is removed when the core reaches it.
        case tombstone
    }

    /// The answers that are kept for one connection, the oldest first.
    private struct KeptAnswers {
        /// The outcomes of posts, and the replies to a connection without a channel.
        var answers = Deque<Answer>()
        /// The replies to a connection with a channel. They have a window of their own, because the client may read the
        /// channel and the bus at different times.
        var replies = Deque<Reply>()
        /// The number of replies in both queues, without outcomes.
        var replyCount = 0

        var isEmpty: Bool { answers.isEmpty && replies.isEmpty }
    }

    /// Releases the memory of connections that are gone (E8).
    func releaseMemory() { kept.releaseMemory() }

    /// Returns a gated bus for the replies to calls that arrived on `bus`: replies that it sends pass through this
    /// queue. The gated bus keeps the queue and `bus` alive.
    func way(to bus: any MessageBus) -> any MessageBus { GatedBus(gate: self, bus: bus) }

    /// Sends a reply now, or keeps it.
    private func send(_ message: Message, to bus: any MessageBus) {
        guard let caller = message.destination?.unique else { return bus.send(message) }
        switch turn(caller, Self.size(of: message)) {
        case .now: bus.send(message)
        case let turn: keep(Reply(message, to: bus), for: caller, until: turn)
        }
    }

    private func send(_ message: MarshalledMessage, to bus: any MessageBus) {
        switch turn(message.destination, max(Self.smallSize, message.byteCount)) {
        case .now: bus.send(message)
        case let turn: keep(Reply(Message(message), to: bus), for: message.destination, until: turn)
        }
    }

    /// Stores a reply in the queue that the core has chosen for it.
    private func keep(_ reply: Reply, for caller: UniqueName, until turn: DistributedCenter.ReplyTurn) {
        if case .atSendReply = turn {
            kept[caller, default: KeptAnswers()].replies.append(reply)
        } else {
            kept[caller, default: KeptAnswers()].answers.append(.reply(reply))
        }
        kept[caller]?.replyCount += 1
    }

    /// Sends the outcome of a post on its channel now, or keeps it.
    ///
    /// - Parameter maySend: asks the core whether this number of bytes may be sent to the client now. By this call the
    ///   core counts the answer, as sent or as kept.
    func send(_ answer: ChannelAnswer, maySend: (UniqueName, Int) -> Bool) {
        let channel = answer.post.channel
        // The client has left or closed its end, so the outcome reaches nobody.
        guard channel.takesOutcomes else { return }
        // A channel that is ending gets its outcomes at once and without the core, because no later acknowledgment will
        // release them.
        if channel.end != nil || maySend(channel.client, answer.byteCount) {
            channel.append(answer)
        } else {
            channel.keptBytes += answer.byteCount
            kept[channel.client, default: KeptAnswers()].answers.append(.outcome(answer))
        }
    }

    /// Sends the oldest answer that is kept for a connection.
    func sendKeptAnswer(for caller: UniqueName) {
        guard let answer = kept[caller]?.answers.popFirst() else { return }
        switch answer {
        case .reply(let reply): sendKept(reply, to: caller)
        case .outcome(let answer):
            answer.post.channel.keptBytes -= answer.byteCount
            answer.post.channel.append(answer)
        case .tombstone: break
        }
        forgetIfEmpty(caller)
    }

    /// Sends the oldest reply that is kept for a client with a channel.
    func sendKeptReply(for caller: UniqueName) {
        guard let reply = kept[caller]?.replies.popFirst() else { return }
        sendKept(reply, to: caller)
        forgetIfEmpty(caller)
    }

    /// Sends a reply that was removed from its queue.
    private func sendKept(_ reply: Reply, to caller: UniqueName) {
        kept[caller]?.replyCount -= 1
        reply.bus.send(reply.message)
        reply.whenSent?()
    }

    private func forgetIfEmpty(_ caller: UniqueName) {
        if kept[caller]?.isEmpty == true { kept[caller] = nil }
    }

    /// Calls `body` when the newest kept reply to a connection has been sent. It is called at once if none is kept, and
    /// never if the connection leaves first. A later `body` replaces an earlier one for the same reply. Replies are
    /// newest in ``KeptAnswers/replies``, because a connection with a channel gets them only there.
    func whenSent(to caller: UniqueName, _ body: @escaping () -> Void) {
        guard let kept = kept[caller], kept.replyCount > 0 else { return body() }
        if let reply = kept.replies.last { return reply.whenSent = body }
        for answer in kept.answers.reversed() {
            if case .reply(let reply) = answer { return reply.whenSent = body }
        }
    }

    /// Whether replies on the bus are kept for a connection.
    func keepsReplies(for caller: UniqueName) -> Bool { kept[caller].map { $0.replyCount > 0 } ?? false }

    /// Sends all outcomes that are kept for a channel on it, because the channel is about to end. They leave
    /// tombstones.
    func release(for channel: Channel) {
        guard channel.keptBytes > 0, let before = kept[channel.client] else { return }
        channel.keptBytes = 0
        kept[channel.client]?.answers = Deque()
        var tombstone: [Int] = []
        for (index, answer) in before.answers.enumerated() {
            if case .outcome(let outcome) = answer, outcome.post.channel === channel {
                channel.append(outcome)
                kept[channel.client]?.answers.append(.tombstone)
                tombstone.append(before.answers.count - 1 - index)
            } else {
                kept[channel.client]?.answers.append(answer)
            }
        }
        onTombstones(channel.client, tombstone)
    }

    /// Discards the answers to a connection that has left the bus.
    func forget(_ caller: UniqueName) {
        kept[caller] = nil
    }

    /// Returns the size that a reply counts as, in bytes. The most frequent replies, which carry a number or nothing,
    /// have a fixed size, so that their messages need not be measured.
    private static func size(of message: Message) -> Int {
        ["", "u", "t"].contains(where: message.hasSignature) ? smallSize : message.byteCount
    }

    /// The size that these frequent replies count as, in bytes, and the minimum for others.
    private static let smallSize = 128

    /// A bus whose messages pass through a reply queue. Calls go to the bus directly.
    private final class GatedBus: MessageBus {
        private let gate: ReplyQueue
        private let bus: any MessageBus

        init(gate: ReplyQueue, bus: any MessageBus) {
            self.gate = gate
            self.bus = bus
        }

        var context: MainContext { bus.context }

        func send(_ message: Message) {
            gate.send(message, to: bus)
        }

        func send(_ message: MarshalledMessage) {
            gate.send(message, to: bus)
        }

        func call(
            _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void
        ) {
            bus.call(message, timeout: timeout, completion: completion)
        }
    }
}
