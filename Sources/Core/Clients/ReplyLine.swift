// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The messages on the bus to a client that has a channel: replies to its calls, which it confirms apart from what goes to
/// the channel.
struct ReplyLine {
    var flow = FlowWindow()
    /// The sizes of the replies that are kept for it, the oldest first.
    var kept = Deque<Int>()
    /// Whether it has the channel still.
    var hasChannel = true

    /// Whether another reply goes this way: behind those that are kept, also when the channel has ended.
    var isInUse: Bool { hasChannel || !kept.isEmpty }

    /// Whether nothing is left of it.
    var isOver: Bool { !isInUse && flow.unconfirmed.messages == 0 && flow.unansweredProbes == 0 }
}
