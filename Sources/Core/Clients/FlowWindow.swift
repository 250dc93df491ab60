// SPDX-License-Identifier: Apache-2.0
/// The window of a connection: the messages that it was sent and has not acknowledged (A4, `docs/flow-control.md`).
///
/// After every 64 messages or 64 KiB the connection gets a probe (`Peer.Ping`, which D-Bus libraries answer by
/// themselves, in order). With two unacknowledged windows, sending stops until an acknowledgment comes. This is safety,
/// not policy: it never makes a client suspended.
///
/// A connection that never answered a probe may be unable to answer (B6). The driver of the center then finds out in
/// another way whether it reads. Where that is impossible, its oldest window counts as read from time to time.
struct FlowWindow {
    /// The maximum number of messages in a window.
    static let messages = 64
    /// The size at which a window is full, in bytes, so that large notifications do not pile up either.
    static let bytes = 64 << 10
    /// The maximum number of unacknowledged windows.
    static let unanswered = 2

    /// An amount of sent messages.
    struct Amount: Equatable {
        var messages = 0
        var bytes = 0
        /// The numbered content of the messages, without the parts that were written off.
        var told = NumberedContent()
    }

    /// The content of messages that has sequence numbers. The client misses it when the messages do not reach it.
    struct NumberedContent: Equatable {
        /// The number of notifications. Each has one sequence number.
        var notifications = 0
        /// The number of losses in `Dropped` signals. They take as many sequence numbers, which nothing else explains.
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// The messages since the last probe.
    private var openWindow = Amount()
    /// The messages before each unacknowledged probe, from the probe before it on; the oldest first.
    private var unacknowledgedWindows: [Amount] = []
    /// The number of probes that were assumed acknowledged. Their answers may still come, before the answers of later
    /// probes.
    private var assumedAcked = 0
    /// The numbered content that the bus carried before the connection had a channel. Acknowledgments on the channel
    /// prove nothing about it.
    private var staleContent = NumberedContent()
    /// The number of probes sent over the bus before the connection had a channel, whose answers nothing waits for any
    /// more. These answers come before all others.
    private var staleAcksExpected = 0
    /// The size of the messages before these probes, in bytes.
    private(set) var staleBytes = 0
    private var hasAnswered = false
    /// Whether the connection has used up its windows without ever having answered.
    private(set) var isSilent = false
    /// Whether the driver is finding out in another way whether the connection reads.
    private(set) var isBacklogProbed = false
    /// Whether that is so although the connection answers probes. It may be a program of one thread that waits for a
    /// reply to its call, and answers no Ping before it has the reply.
    private var isBacklogProbedDuringCall = false
    /// The number of acknowledgments until the bus has space for the connection again; 0 while it is not known to lack
    /// space.
    private var acksUntilUnblocked = 0
    /// Whether the connection waits for the in-flight quota, which all connections share.
    var isBlockedOnQuota = false

    var isOpen: Bool { unacknowledgedWindows.count < Self.unanswered && !isBlockedOnQuota && !isBlocked }

    /// Whether the bus has no space for the connection, so that messages to it may be lost.
    var isBlocked: Bool { acksUntilUnblocked > 0 }

    /// Whether nothing more is sent before an acknowledgment comes.
    var isUsedUp: Bool { unacknowledgedWindows.count >= Self.unanswered }

    var state: FlowState { isSilent ? .unanswered : isOpen ? .open : .waiting }

    /// Whether no acknowledgment is expected.
    var isIdle: Bool { unacknowledgedWindows.isEmpty }

    /// Whether messages were sent behind the last probe.
    var hasUnprobed: Bool { openWindow.messages > 0 }

    /// All messages that were sent and not acknowledged.
    var unconfirmed: Amount {
        unacknowledgedWindows.reduce(into: openWindow) { sum, amount in
            sum.messages += amount.messages
            sum.bytes += amount.bytes
            sum.told.add(amount.told)
        }
    }

    /// The bytes until the window is full.
    var room: Int { max(0, Self.bytes - openWindow.bytes) }

    /// Counts a message that is sent now.
    ///
    /// - Parameters:
    ///   - byteCount: the size of the message.
    ///   - told: its numbered content.
    ///   - fills: whether the next message would not fit into the window.
    /// - Returns: whether the window is full, so that the connection has to be probed.
    mutating func sent(byteCount: Int, content told: NumberedContent, fills: Bool) -> Bool {
        openWindow.messages += 1
        openWindow.told.notifications += told.notifications
        openWindow.told.losses += told.losses
        openWindow.bytes += byteCount
        return fills || openWindow.messages >= Self.messages || openWindow.bytes >= Self.bytes
    }

    /// The number of replies that may still go, one at a time, although the window is used up. The connection answers
    /// probes, and may be a program of one thread that waits for each reply. Whether it has read anything is unknown.
    private var answersAlone = 0
    private static let maxAnswersAlone = 16

    /// Allows some replies to go although the window is used up.
    mutating func allowSingleReplies() { answersAlone = Self.maxAnswersAlone }

    /// Counts a reply that is sent now although the window is used up, if one may go. No probe follows.
    mutating func sendsSingleReply(byteCount: Int) -> Bool {
        guard answersAlone > 0, !isBlockedOnQuota else { return false }
        answersAlone -= 1
        openWindow.messages += 1
        openWindow.bytes += byteCount
        return true
    }

    /// Whether the connection answers probes. Then no window is assumed to have been read.
    var answersProbes: Bool { hasAnswered }

    /// Counts a probe that is sent now.
    mutating func probe() {
        unacknowledgedWindows.append(openWindow)
        openWindow = Amount()
    }

    /// The number of probes whose answers may still come.
    var unansweredProbes: Int { unacknowledgedWindows.count + assumedAcked }

    /// Stops waiting for acknowledgments of messages on the bus, because the connection gets a channel.
    mutating func abandonBusAcks() {
        staleBytes += unconfirmed.bytes
        staleContent.add(writeOff())
        staleAcksExpected += unansweredProbes
    }

    /// Takes an acknowledgment of any kind.
    ///
    /// - Parameter byPeer: whether the connection itself sent it, and is thus known to answer.
    /// - Returns: the number of bytes that it confirms.
    mutating func answered(byPeer: Bool = true) -> Int {
        guard assumedAcked > 0 || !unacknowledgedWindows.isEmpty else { return 0 }
        if byPeer {
            hasAnswered = true
            isBacklogProbedDuringCall = false
            answersAlone = 0
        }
        isSilent = false
        if isBlocked { acksUntilUnblocked -= 1 }
        guard assumedAcked == 0 else {
            assumedAcked -= 1
            return 0
        }
        return unacknowledgedWindows.removeFirst().bytes
    }

    /// Takes an answer on the bus from a connection that has or had a channel.
    mutating func noteAnswering() {
        hasAnswered = true
        isSilent = false
        guard expectsStaleAck else { return }
        staleAcksExpected -= 1
        if staleAcksExpected == 0 { (staleContent, staleBytes) = (NumberedContent(), 0) }
    }

    /// Whether the next answer on the bus belongs to a probe from before the channel.
    var expectsStaleAck: Bool { staleAcksExpected > 0 }

    /// Blocks sending until all outstanding probes have been answered. The last of them was sent just now: earlier
    /// answers prove nothing about the present space on the bus.
    mutating func block() {
        acksUntilUnblocked = assumedAcked + unacknowledgedWindows.count
    }

    /// Writes off the unacknowledged messages, which may not have reached the connection.
    ///
    /// - Returns: their numbered content; each part is returned only once.
    mutating func writeOff() -> NumberedContent {
        var told = unconfirmed.told
        told.add(staleContent)
        staleContent = NumberedContent()
        openWindow.told = NumberedContent()
        for index in unacknowledgedWindows.indices { unacknowledgedWindows[index].told = NumberedContent() }
        return told
    }

    /// Whether the driver must now find out in another way whether the connection reads. If so, the window expects the
    /// result. A connection that waits for the in-flight quota may block itself with its own unacknowledged messages.
    ///
    /// - Parameters:
    ///   - isRoomWanted: whether connections wait for the in-flight quota, of which this one may hold a part.
    ///   - isAnswerDue: whether a reply to one of its calls waits.
    mutating func needsBacklogProbe(isRoomWanted: Bool, isAnswerDue: Bool) -> Bool {
        let takesRoom = isRoomWanted && unacknowledgedWindows.contains { $0.bytes > 0 }
        guard isUsedUp || isBlocked || isBlockedOnQuota && !isIdle || takesRoom, !hasAnswered || isAnswerDue,
            !isBacklogProbed
        else { return false }
        isBacklogProbed = true
        isBacklogProbedDuringCall = hasAnswered
        isSilent = !hasAnswered
        return true
    }

    /// Takes the result of looking for unread messages.
    ///
    /// - Parameter isAll: whether everything sent before has been read. Otherwise the oldest window alone is assumed to
    ///   have been read, and none of a connection that answers probes.
    /// - Returns: the number of bytes that it confirms.
    mutating func backlogProbed(all isAll: Bool) -> Int {
        guard isBacklogProbed else { return 0 }
        isBacklogProbed = false
        guard !hasAnswered || isBacklogProbedDuringCall && isAll, !unacknowledgedWindows.isEmpty else { return 0 }
        let confirmed = isAll ? unacknowledgedWindows[...] : unacknowledgedWindows.prefix(1)
        let bytes = confirmed.reduce(0) { $0 + $1.bytes }
        assumedAcked += confirmed.count
        acksUntilUnblocked = 0
        unacknowledgedWindows.removeFirst(confirmed.count)
        return bytes
    }
}
