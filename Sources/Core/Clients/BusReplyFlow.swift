// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The flow control of replies on the bus to a client that has a channel (`DistributedCenter+Replies.swift`). The
/// client gets its notifications on the channel. Its calls still come on the bus, and their replies have a window of
/// their own, which the client acknowledges on the bus. Thus a program that waits for a reply gets it even while its
/// channel is full.
struct BusReplyFlow {
    /// The unacknowledged replies.
    var flow = FlowWindow()
    /// The sizes of the pending replies, in bytes, the oldest first. They wait for the window.
    var kept = Deque<Int>()
    /// Whether the client still has its channel.
    var hasChannel = true

    /// Whether the next reply goes through this window. That is the case while the channel exists, and afterwards until
    /// the pending replies are sent.
    var isInUse: Bool { hasChannel || !kept.isEmpty }

    /// Whether this state can be removed: the channel has ended, and all replies are sent and acknowledged.
    var isOver: Bool { !isInUse && flow.unconfirmed.messages == 0 && flow.unansweredProbes == 0 }
}
