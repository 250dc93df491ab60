// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The replies on the bus to a client that has a channel. The client confirms them apart from messages on the channel.
struct ReplyLine {
    var flow = FlowWindow()
    /// The sizes of the replies that are kept for the client, in bytes, the oldest first.
    var kept = Deque<Int>()
    /// Whether the client still has the channel.
    var hasChannel = true

    /// Whether another reply goes on the bus. That is so while the channel exists, and then until the kept replies are
    /// sent.
    var isInUse: Bool { hasChannel || !kept.isEmpty }

    /// Whether all replies are sent and confirmed, and the channel has ended.
    var isOver: Bool { !isInUse && flow.unconfirmed.messages == 0 && flow.unansweredProbes == 0 }
}
