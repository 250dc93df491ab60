// SPDX-License-Identifier: Apache-2.0
/// How much a connection may have been sent without having confirmed it (A4, `docs/flow-control.md`).
///
/// After every window of messages the connection is probed (`Peer.Ping`, which D-Bus libraries answer by themselves, in
/// order). With two windows unanswered, sending stops until an answer comes. This is safety, not policy: it never makes
/// a client suspended.
///
/// One that never answered any probe may not know how to (B6). Whether it reads is then found out in another way, by
/// whoever drives the center; where nothing tells, its oldest window is taken for read every now and then.
struct FlowWindow {
    /// Messages in a window.
    static let messages = 64
    /// Bytes in a window, so that large notifications do not pile up either.
    static let bytes = 64 << 10
    /// Windows that may be unanswered.
    static let unanswered = 2

    /// What was sent.
    struct Amount: Equatable {
        var messages = 0
        var bytes = 0
        /// What they tell, without what was written off.
        var told = Told()
    }

    /// What a client does not know when messages do not reach it.
    struct Told: Equatable {
        /// Each has a number of the sequence.
        var notifications = 0
        /// Losses that it was told of: as many numbers, too, which nothing else explains.
        var losses: UInt64 = 0

        mutating func add(_ other: Self) {
            notifications += other.notifications
            losses += other.losses
        }
    }

    /// Sent since the last probe.
    private var openWindow = Amount()
    /// Sent before each probe that is not answered yet, and behind the one before it; the oldest first.
    private var unacknowledgedWindows: [Amount] = []
    /// Probes that were taken for answered, and whose answers may still come, before those of the others.
    private var assumedAcked = 0
    /// What was sent to the connection by the bus before it had a channel. What it confirms of that there tells nothing.
    private var unsure = Told()
    /// Answers to probes that were sent over the bus before it had a channel and behind which nothing waits any more. They
    /// come before those of the others.
    private var staleAcksExpected = 0
    /// The size of all that these are about, in bytes.
    private(set) var staleBytes = 0
    private var hasAnswered = false
    /// Whether it has used up its windows without ever having answered.
    private(set) var isSilent = false
    /// Whether it is being found out in another way whether it reads.
    private(set) var isBacklogProbed = false
    /// Whether that is so though it answers: it may be a program of one thread that waits for an answer to its call, and
    /// answers no Ping before it has that.
    private var isBacklogProbedDuringCall = false
    /// Answers until the bus has room for the connection again; 0 while it has, as far as is known.
    private var acksUntilUnblocked = 0
    /// Whether it has to wait for room in what all together may have on their way.
    var isBlockedOnQuota = false

    var isOpen: Bool { unacknowledgedWindows.count < Self.unanswered && !isBlockedOnQuota && !isBlocked }

    /// The bus has no room for the connection: what is sent there may be lost.
    var isBlocked: Bool { acksUntilUnblocked > 0 }

    /// Whether an answer is waited for, without which nothing more is sent.
    var isUsedUp: Bool { unacknowledgedWindows.count >= Self.unanswered }

    var state: FlowState { isSilent ? .unanswered : isOpen ? .open : .waiting }

    /// Whether no answer is waited for.
    var isIdle: Bool { unacknowledgedWindows.isEmpty }

    /// Whether something was sent behind the last probe.
    var isAnythingUnprobed: Bool { openWindow.messages > 0 }

    /// All that was sent and not confirmed.
    var unconfirmed: Amount {
        unacknowledgedWindows.reduce(into: openWindow) { sum, amount in
            sum.messages += amount.messages
            sum.bytes += amount.bytes
            sum.told.add(amount.told)
        }
    }

    /// Bytes that may be added before a window is full.
    var room: Int { max(0, Self.bytes - openWindow.bytes) }

    /// Counts a message that is sent now.
    ///
    /// - Parameter fills: whether the next would not find room in the window.
    /// - Returns: whether a window is full, so that the connection has to be probed.
    mutating func sent(byteCount: Int, telling told: Told, fills: Bool) -> Bool {
        openWindow.messages += 1
        openWindow.told.notifications += told.notifications
        openWindow.told.losses += told.losses
        openWindow.bytes += byteCount
        return fills || openWindow.messages >= Self.messages || openWindow.bytes >= Self.bytes
    }

    /// Answers that may go though the window is used up, one at a time: nothing tells what a client has read that answers
    /// probes, and may be a program of one thread that waits for each.
    private var answersAlone = 0
    private static let maxAnswersAlone = 16

    /// From now on some answers may go alone.
    mutating func letAnswersGoAlone() { answersAlone = Self.maxAnswersAlone }

    /// Counts an answer that is sent now though the window is used up, if one may go. No probe follows.
    mutating func sendsAlone(byteCount: Int) -> Bool {
        guard answersAlone > 0, !isBlockedOnQuota else { return false }
        answersAlone -= 1
        openWindow.messages += 1
        openWindow.bytes += byteCount
        return true
    }

    /// Whether it answers probes, so that nothing is taken for read that it may not have read.
    var answersProbes: Bool { hasAnswered }

    /// Counts a probe that is sent now.
    mutating func probe() {
        unacknowledgedWindows.append(openWindow)
        openWindow = Amount()
    }

    /// Probes whose answers may still come.
    var unansweredProbes: Int { unacknowledgedWindows.count + assumedAcked }

    /// The connection gets a channel: nothing waits any more for answers to what was probed on the bus.
    mutating func answersNeedNotCome() {
        staleBytes += unconfirmed.bytes
        unsure.add(writeOff())
        staleAcksExpected += unansweredProbes
    }

    /// An answer came, of whatever kind.
    ///
    /// - Parameter byPeer: whether it was the connection's own, so that it is known to answer.
    /// - Returns: how many bytes it confirms.
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

    /// An answer of its own came on the bus of one that has or had a channel.
    mutating func noteAnswering() {
        hasAnswered = true
        isSilent = false
        guard isAnswerOverdue else { return }
        staleAcksExpected -= 1
        if staleAcksExpected == 0 { (unsure, staleBytes) = (Told(), 0) }
    }

    /// Whether the next answer on the bus is to a probe from before a channel.
    var isAnswerOverdue: Bool { staleAcksExpected > 0 }

    /// Nothing more is to be sent until all probes that are on their way have been answered. The last of them was sent
    /// just now: the answers to others tell nothing of the room that there is.
    mutating func block() {
        acksUntilUnblocked = assumedAcked + unacknowledgedWindows.count
    }

    /// Nothing of what is not confirmed yet need have reached the connection.
    ///
    /// - Returns: what they told; each is counted once.
    mutating func writeOff() -> Told {
        var told = unconfirmed.told
        told.add(unsure)
        unsure = Told()
        openWindow.told = Told()
        for index in unacknowledgedWindows.indices { unacknowledgedWindows[index].told = Told() }
        return told
    }

    /// Whether it has to be found out now in another way whether the connection reads. One that waits for room may take
    /// that itself, with what it has not confirmed.
    ///
    /// - Parameters:
    ///   - isRoomWanted: whether others wait for room, which it may take.
    ///   - isAnswerDue: whether an answer to one of its calls waits.
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

    /// That was found out.
    ///
    /// - Parameter isAll: whether all that it was asked about before has been read; otherwise only the oldest is taken
    ///   for read, and nothing of one that answers.
    /// - Returns: how many bytes that confirms.
    mutating func witnessed(all isAll: Bool) -> Int {
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
