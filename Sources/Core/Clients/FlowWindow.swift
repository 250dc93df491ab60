// SPDX-License-Identifier: Apache-2.0
/// The flow control of one connection: the messages that it was sent and has not acknowledged (A4,
/// `docs/flow-control.md`). ``DistributedCenter`` counts each message here, and sends nothing more while ``isOpen`` is
/// false.
///
/// After every 64 messages or 64 KiB the connection gets a **probe**: a `Peer.Ping`, which D-Bus libraries answer by
/// themselves and in order. The answer acknowledges all messages before the probe. The messages between two probes are
/// a **window**. With two unacknowledged windows, sending stops until an acknowledgment comes. Further
/// messages wait in the service, and do not fill the bounded queue of the bus. A closed window does not suspend a
/// client.
///
/// On a channel a probe is a position in the stream of bytes, and no Ping is sent. It counts as answered when all bytes
/// before it are in the socket.
///
/// A connection that never answered a probe may be unable to answer (B6). The driver of the center then makes a
/// **backlog probe**: it looks at the unread bytes of the connection's socket. Where that is impossible, the oldest
/// window is assumed to be acknowledged after a while.
struct FlowWindow {
    /// The number of messages after which a window is full.
    static let messages = 64
    /// The bytes after which a window is full, so that large notifications do not accumulate either.
    static let bytes = 64 << 10
    /// The maximum number of unacknowledged windows; sending stops at it.
    static let unanswered = 2

    /// An amount of sent messages.
    struct Amount: Equatable {
        var messages = 0
        var bytes = 0
        /// The numbered content of the messages, without parts that ``writeOff()`` has returned.
        var numbered = NumberedContent()
    }

    /// The content of messages that has sequence numbers. If the messages are lost, the client gets a report of so many
    /// losses.
    struct NumberedContent: Equatable {
        /// The number of notifications. Each has one sequence number.
        var notifications = 0
        /// The number of losses that `Dropped` signals reported. Each has one sequence number too. If the signal is
        /// lost, nothing else explains the missing numbers.
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// The messages since the last probe: the window that takes new messages.
    private var openWindow = Amount()
    /// The windows that were probed and not acknowledged, the oldest first.
    private var unacknowledgedWindows: [Amount] = []
    /// The number of windows that were assumed to be acknowledged. The answers to their probes may still come, before
    /// those to later probes, and then acknowledge nothing.
    private var assumedAcked = 0
    /// The numbered content of unacknowledged messages on the bus from before the connection had a channel.
    /// Acknowledgments on the channel prove nothing about it.
    private var staleContent = NumberedContent()
    /// The number of probes from before the channel whose answers are still expected. Nothing waits for them. They come
    /// before all other answers on the bus.
    private var staleAcksExpected = 0
    /// The size of the messages before those probes, in bytes.
    private(set) var staleBytes = 0
    /// Whether the connection itself has ever answered a probe.
    private var hasAnswered = false
    /// Whether the connection needed a backlog probe and has never answered a probe.
    private(set) var isSilent = false
    /// Whether a backlog probe is under way.
    private(set) var isBacklogProbed = false
    /// Whether a backlog probe is under way although the connection answers probes. A reply to one of its calls is
    /// pending. A single-threaded program that waits for this reply answers no Ping before it.
    private var isBacklogProbedDuringCall = false
    /// The number of acknowledgments after which the bus is known to have space for the connection again. It is 0
    /// unless the bus refused a message.
    private var acksUntilUnblocked = 0
    /// Whether the connection waits for the in-flight quota, which all connections share.
    var isBlockedOnQuota = false

    /// Whether a message may be sent now.
    var isOpen: Bool { unacknowledgedWindows.count < Self.unanswered && !isBlockedOnQuota && !isBlocked }

    /// Whether the bus refused a message to the connection, so that further ones may be lost too.
    var isBlocked: Bool { acksUntilUnblocked > 0 }

    /// Whether as many windows are unacknowledged as allowed.
    var isUsedUp: Bool { unacknowledgedWindows.count >= Self.unanswered }

    /// The state for inspection.
    var state: FlowState { isSilent ? .unanswered : isOpen ? .open : .waiting }

    /// Whether no probe is unanswered. The open window may have messages.
    var isIdle: Bool { unacknowledgedWindows.isEmpty }

    /// Whether messages were sent since the last probe.
    var hasUnprobed: Bool { openWindow.messages > 0 }

    /// All messages that were sent and not acknowledged: those of the open window and of the unacknowledged windows.
    var unconfirmed: Amount {
        unacknowledgedWindows.reduce(into: openWindow) { sum, amount in
            sum.messages += amount.messages
            sum.bytes += amount.bytes
            sum.numbered.add(amount.numbered)
        }
    }

    /// The bytes that fit into the open window before it is full.
    var bytesLeft: Int { max(0, Self.bytes - openWindow.bytes) }

    /// Counts a message that is sent now.
    ///
    /// - Parameters:
    ///   - byteCount: the size of the message.
    ///   - numbered: its numbered content.
    ///   - fills: whether the next message would not fit into the window, so that the window is full regardless of its
    ///     size.
    /// - Returns: whether the window is full, so that the connection has to be probed.
    mutating func sent(byteCount: Int, content numbered: NumberedContent, fills: Bool) -> Bool {
        openWindow.messages += 1
        openWindow.numbered.notifications += numbered.notifications
        openWindow.numbered.losses += numbered.losses
        openWindow.bytes += byteCount
        return fills || openWindow.messages >= Self.messages || openWindow.bytes >= Self.bytes
    }

    /// The number of replies that may still be sent, one at a time, although the windows are used up. The connection
    /// answers probes, and may be a single-threaded program that waits for each reply. Nothing shows whether it has
    /// read anything.
    private var singleRepliesLeft = 0
    /// The number of such replies after each backlog probe. It bounds the replies to a program that reads none.
    private static let maxSingleReplies = 16

    /// Allows 16 more replies to be sent although the windows are used up, after a backlog probe without a result.
    mutating func allowSingleReplies() { singleRepliesLeft = Self.maxSingleReplies }

    /// Counts a reply that is sent now although the windows are used up. No probe follows.
    ///
    /// - Returns: whether such a reply may be sent; otherwise nothing is counted.
    mutating func sendsSingleReply(byteCount: Int) -> Bool {
        guard singleRepliesLeft > 0, !isBlockedOnQuota else { return false }
        singleRepliesLeft -= 1
        openWindow.messages += 1
        openWindow.bytes += byteCount
        return true
    }

    /// Whether the connection answers probes. Its windows are then never assumed to be acknowledged just because time
    /// has passed.
    var answersProbes: Bool { hasAnswered }

    /// Counts a probe that is sent now: it closes the open window, and a new one begins.
    mutating func probe() {
        unacknowledgedWindows.append(openWindow)
        openWindow = Amount()
    }

    /// The number of probes whose answers may still come.
    var unansweredProbes: Int { unacknowledgedWindows.count + assumedAcked }

    /// Stops waiting for acknowledgments of messages on the bus, because the connection gets a channel. Their content
    /// becomes stale: it counts as possibly lost if the bus ends.
    mutating func abandonBusAcks() {
        staleBytes += unconfirmed.bytes
        staleContent.add(writeOff())
        staleAcksExpected += unansweredProbes
    }

    /// Takes an acknowledgment: an answer to a probe, or the end of a write to a channel.
    ///
    /// - Parameter byPeer: whether the connection itself sent it, and thus is known to answer.
    /// - Returns: the number of bytes that it acknowledges.
    mutating func answered(byPeer: Bool = true) -> Int {
        // An answer that no probe expects acknowledges nothing.
        guard assumedAcked > 0 || !unacknowledgedWindows.isEmpty else { return 0 }
        if byPeer {
            hasAnswered = true
            isBacklogProbedDuringCall = false
            singleRepliesLeft = 0
        }
        isSilent = false
        if isBlocked { acksUntilUnblocked -= 1 }
        // This answer belongs to a window that was assumed to be acknowledged before.
        guard assumedAcked == 0 else {
            assumedAcked -= 1
            return 0
        }
        return unacknowledgedWindows.removeFirst().bytes
    }

    /// Takes an answer on the bus from a connection that has or had a channel. It shows that the connection answers,
    /// and acknowledges nothing but stale messages.
    mutating func noteAnswering() {
        hasAnswered = true
        isSilent = false
        guard expectsStaleAck else { return }
        staleAcksExpected -= 1
        if staleAcksExpected == 0 { (staleContent, staleBytes) = (NumberedContent(), 0) }
    }

    /// Whether the next answer on the bus belongs to a probe from before the channel.
    var expectsStaleAck: Bool { staleAcksExpected > 0 }

    /// Blocks sending after the bus refused a message, until all outstanding probes are answered. The last of them was
    /// sent just now: earlier answers show nothing about the present space on the bus.
    mutating func block() {
        acksUntilUnblocked = assumedAcked + unacknowledgedWindows.count
    }

    /// Returns the numbered content of the unacknowledged messages, which may be lost. It is returned only once, so
    /// that a loss is not counted twice.
    mutating func writeOff() -> NumberedContent {
        var numbered = unconfirmed.numbered
        numbered.add(staleContent)
        staleContent = NumberedContent()
        openWindow.numbered = NumberedContent()
        for index in unacknowledgedWindows.indices { unacknowledgedWindows[index].numbered = NumberedContent() }
        return numbered
    }

    /// Decides whether the driver must make a backlog probe now. If true, the window expects its result
    /// (``backlogProbed(all:)``).
    ///
    /// A probe is needed if the connection cannot be sent more, or its unacknowledged messages take in-flight quota
    /// that others wait for. A connection that waits for the quota may wait for its own messages. A connection that
    /// answers probes needs it only while a reply to it is pending.
    ///
    /// - Parameters:
    ///   - isQuotaWanted: whether any connection waits for the in-flight quota.
    ///   - isAnswerDue: whether a reply to a call of this connection is pending.
    mutating func needsBacklogProbe(isQuotaWanted: Bool, isAnswerDue: Bool) -> Bool {
        let takesQuota = isQuotaWanted && unacknowledgedWindows.contains { $0.bytes > 0 }
        guard isUsedUp || isBlocked || isBlockedOnQuota && !isIdle || takesQuota, !hasAnswered || isAnswerDue,
            !isBacklogProbed
        else { return false }
        isBacklogProbed = true
        isBacklogProbedDuringCall = hasAnswered
        isSilent = !hasAnswered
        return true
    }

    /// Takes the result of a backlog probe.
    ///
    /// - Parameter isAll: whether the connection has read all messages. Otherwise nothing shows that, and a while has
    ///   passed: the oldest window is assumed to be acknowledged, unless the connection answers probes.
    /// - Returns: the number of bytes that count as acknowledged.
    mutating func backlogProbed(all isAll: Bool) -> Int {
        guard isBacklogProbed else { return 0 }
        isBacklogProbed = false
        // For a connection that answers probes, the result counts only if it has read all messages and no answer has
        // come since the backlog probe began. An answer itself shows which messages were read.
        guard !hasAnswered || isBacklogProbedDuringCall && isAll, !unacknowledgedWindows.isEmpty else { return 0 }
        let confirmed = isAll ? unacknowledgedWindows[...] : unacknowledgedWindows.prefix(1)
        let bytes = confirmed.reduce(0) { $0 + $1.bytes }
        assumedAcked += confirmed.count
        // The messages count as read, so the bus has space for the connection again.
        acksUntilUnblocked = 0
        unacknowledgedWindows.removeFirst(confirmed.count)
        return bytes
    }
}
