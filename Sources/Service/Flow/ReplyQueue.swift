// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Sends answers as far as their receivers read them (A4, E4), and keeps the others in their order: replies on the bus,
/// and outcomes of posts on channels.
///
/// The core decides, and counts.
final class ReplyQueue {
    /// Asks the core when to send a reply of so many bytes to a connection.
    var turn: ((UniqueName, Int) -> DistributedCenter.ReplyTurn)!
    /// Tells the core which of the answers that it counts for a connection will not be sent, from the last on.
    var onVoid: ((UniqueName, [Int]) -> Void)!
    private var kept: [UniqueName: Kept] = [:]

    private final class Reply {
        let message: Message
        let bus: any MessageBus
        var whenSent: (() -> Void)?

        init(_ message: Message, to bus: any MessageBus) {
            self.message = message
            self.bus = bus
        }
    }

    private enum Answer {
        case reply(Reply)
        case outcome(ChannelAnswer)
        /// Of a channel that has ended. It keeps its place until the core has come to it.
        case void
    }

    /// What is kept for one connection, the oldest first.
    private struct Kept {
        /// Outcomes, and the replies to one that has no channel.
        var answers = Deque<Answer>()
        /// The replies to one that has a channel, beside that.
        var replies = Deque<Reply>()
        /// In both.
        var replyCount = 0

        var isEmpty: Bool { answers.isEmpty && replies.isEmpty }
    }

    /// Gives up what is kept of connections that are gone (E8).
    func releaseRoom() { kept.releaseRoom() }

    /// What stands in the place of a bus for whatever answers the calls that came from there. It keeps the gate and the
    /// bus.
    func way(to bus: any MessageBus) -> any MessageBus { GatedBus(gate: self, bus: bus) }

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

    private func keep(_ reply: Reply, for caller: UniqueName, until turn: DistributedCenter.ReplyTurn) {
        if case .atSendReply = turn {
            kept[caller, default: Kept()].replies.append(reply)
        } else {
            kept[caller, default: Kept()].answers.append(.reply(reply))
        }
        kept[caller]?.replyCount += 1
    }

    /// Appends an outcome to its channel, or keeps it.
    ///
    /// - Parameter maySend: asks the core about so many bytes.
    func send(_ answer: ChannelAnswer, maySend: (UniqueName, Int) -> Bool) {
        let channel = answer.post.channel
        guard channel.takesOutcomes else { return }
        // At its end it gets what there is room for, of what it had written before.
        if channel.end != nil || maySend(channel.client, answer.byteCount) {
            channel.append(answer)
        } else {
            channel.keptBytes += answer.byteCount
            kept[channel.client, default: Kept()].answers.append(.outcome(answer))
        }
    }

    /// Sends the oldest of the answers that are kept for a connection.
    func sendKeptAnswer(for caller: UniqueName) {
        guard let answer = kept[caller]?.answers.popFirst() else { return }
        switch answer {
        case .reply(let reply): sendKept(reply, to: caller)
        case .outcome(let answer):
            answer.post.channel.keptBytes -= answer.byteCount
            answer.post.channel.append(answer)
        case .void: break
        }
        forgetIfEmpty(caller)
    }

    /// Sends the oldest of the replies that are kept for a client beside its channel.
    func sendKeptReply(for caller: UniqueName) {
        guard let reply = kept[caller]?.replies.popFirst() else { return }
        sendKept(reply, to: caller)
        forgetIfEmpty(caller)
    }

    private func sendKept(_ reply: Reply, to caller: UniqueName) {
        kept[caller]?.replyCount -= 1
        reply.bus.send(reply.message)
        reply.whenSent?()
    }

    private func forgetIfEmpty(_ caller: UniqueName) {
        if kept[caller]?.isEmpty == true { kept[caller] = nil }
    }

    /// Calls `body` when the last reply to a connection has been sent: now, where none is kept; never, where it leaves.
    func whenSent(to caller: UniqueName, _ body: @escaping () -> Void) {
        guard let kept = kept[caller], kept.replyCount > 0 else { return body() }
        if let reply = kept.replies.last { return reply.whenSent = body }
        for answer in kept.answers.reversed() {
            if case .reply(let reply) = answer { return reply.whenSent = body }
        }
    }

    /// Whether replies on the bus are kept for a connection.
    func keepsReplies(for caller: UniqueName) -> Bool { kept[caller].map { $0.replyCount > 0 } ?? false }

    /// Appends all outcomes that are kept for a channel, which is about to end.
    func release(for channel: Channel) {
        guard channel.keptBytes > 0, let before = kept[channel.client] else { return }
        channel.keptBytes = 0
        kept[channel.client]?.answers = Deque()
        var void: [Int] = []
        for (place, answer) in before.answers.enumerated() {
            if case .outcome(let outcome) = answer, outcome.post.channel === channel {
                channel.append(outcome)
                kept[channel.client]?.answers.append(.void)
                void.append(before.answers.count - 1 - place)
            } else {
                kept[channel.client]?.answers.append(answer)
            }
        }
        onVoid(channel.client, void)
    }

    /// The connection is gone.
    func forget(_ caller: UniqueName) {
        kept[caller] = nil
    }

    /// The answers that there are many of have a number, or nothing.
    private static func size(of message: Message) -> Int {
        ["", "u", "t"].contains(where: message.hasSignature) ? smallSize : message.byteCount
    }

    private static let smallSize = 128

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
