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
    }

    /// Sent since the last probe.
    private var unprobed = Amount()
    /// Sent before each probe that is not answered yet, and behind the one before it; the oldest first.
    private var probed: [Amount] = []
    /// Probes that were taken for answered, and whose answers may still come, before those of the others.
    private var overtaken = 0
    private var hasAnswered = false
    /// Whether it has used up its windows without ever having answered.
    private(set) var isSilent = false
    /// Whether it is being found out in another way whether it reads.
    private var isBeingWitnessed = false
    /// Whether it has to wait for room in what all together may have on their way.
    var isHeldBack = false

    var isOpen: Bool { probed.count < Self.unanswered && !isHeldBack }

    /// Whether an answer is waited for, without which nothing more is sent.
    var isUsedUp: Bool { probed.count >= Self.unanswered }

    var state: FlowState { isSilent ? .unanswered : isOpen ? .open : .waiting }

    /// Whether no answer is waited for.
    var isIdle: Bool { probed.isEmpty }

    /// All that was sent and not confirmed.
    var unconfirmed: Amount {
        probed.reduce(unprobed) { Amount(messages: $0.messages + $1.messages, bytes: $0.bytes + $1.bytes) }
    }

    /// Counts a message that is sent now.
    ///
    /// - Returns: whether a window is full, so that the connection has to be probed.
    mutating func sent(byteCount: Int) -> Bool {
        unprobed.messages += 1
        unprobed.bytes += byteCount
        return unprobed.messages >= Self.messages || unprobed.bytes >= Self.bytes
    }

    /// Counts a probe that is sent now.
    mutating func probe() {
        probed.append(unprobed)
        unprobed = Amount()
    }

    /// An answer came, of whatever kind.
    ///
    /// - Returns: how many bytes it confirms.
    mutating func answered() -> Int {
        guard overtaken > 0 || !probed.isEmpty else { return 0 }
        hasAnswered = true
        isSilent = false
        guard overtaken == 0 else {
            overtaken -= 1
            return 0
        }
        return probed.removeFirst().bytes
    }

    /// Whether it has to be found out now in another way whether the connection reads.
    mutating func needsWitness() -> Bool {
        guard isUsedUp, !hasAnswered, !isBeingWitnessed else { return false }
        isBeingWitnessed = true
        isSilent = true
        return true
    }

    /// That was found out.
    ///
    /// - Parameter isAll: whether all that it was asked about before has been read; otherwise only the oldest is taken
    ///   for read.
    /// - Returns: how many bytes that confirms.
    mutating func witnessed(all isAll: Bool) -> Int {
        guard isBeingWitnessed else { return 0 }
        isBeingWitnessed = false
        guard !hasAnswered, !probed.isEmpty else { return 0 }
        let confirmed = isAll ? probed[...] : probed.prefix(1)
        let bytes = confirmed.reduce(0) { $0 + $1.bytes }
        overtaken += confirmed.count
        probed.removeFirst(confirmed.count)
        return bytes
    }
}
