/// How much a client may have been sent without having confirmed it (A4, `docs/flow-control.md`).
///
/// After every window of deliveries the client is probed (`Peer.Ping`, which D-Bus libraries answer by themselves, in
/// order). With two windows unanswered, sending stops until an answer comes. This is safety, not policy: it never makes
/// a client suspended.
///
/// A client that never answered any probe may be one that does not know how to, so its probes expire, one at a time
/// and ever more slowly, until a cap; each sign of life from it starts this anew.
struct FlowWindow {
    /// Deliveries in a window.
    static let messages = 64
    /// Bytes in a window, so that large notifications do not pile up either.
    static let bytes = 64 << 10
    /// Windows that may be unanswered.
    static let unanswered = 2
    /// Probes that may expire without a sign of life: 4096 deliveries, or 4 MiB.
    static let expirations = 64
    /// The longest wait for one to expire.
    static let maximumSeconds = 64

    private var messagesSinceProbe = 0
    private var bytesSinceProbe = 0
    /// Probes that hold a window.
    private(set) var outstanding = 0
    /// The deliveries of each of those windows, without those that were written off.
    private var windows: [Int] = []
    /// Answers until the bus has room for the client again; 0 while it has, as far as is known.
    private var answersUntilRoom = 0
    /// Probes that no longer do, and whose answers may still come, before those of the outstanding ones.
    private var expired = 0
    private var expirationsLeft = Self.expirations
    private var hasAnswered = false
    /// Whether a timer runs for the oldest outstanding probe.
    private var isTimed = false

    var isOpen: Bool { outstanding < Self.unanswered && !isBlocked }
    /// The bus has no room for the client: what is sent there may be lost.
    var isBlocked: Bool { answersUntilRoom > 0 }

    /// Whether signs of life matter: the client has never answered.
    var isUnproven: Bool { !hasAnswered }

    /// Counts a probe that is sent now.
    mutating func probed() {
        outstanding += 1
        windows.append(messagesSinceProbe)
        messagesSinceProbe = 0
        bytesSinceProbe = 0
    }

    /// Counts a delivery.
    ///
    /// - Returns: whether a window is full, so that the client has to be probed.
    mutating func sent(byteCount: Int) -> Bool {
        messagesSinceProbe += 1
        bytesSinceProbe += byteCount
        return messagesSinceProbe >= Self.messages || bytesSinceProbe >= Self.bytes
    }

    /// An answer came, of whatever kind.
    mutating func answered() {
        hasAnswered = true
        if isBlocked { answersUntilRoom -= 1 }
        if expired > 0 {
            expired -= 1
        } else if outstanding > 0 {
            outstanding -= 1
            windows.removeFirst()
        }
    }

    /// Nothing more is to be sent until all probes that are on their way have been answered. The last of them was sent
    /// just now: the answers to others tell nothing of the room that there is.
    mutating func block() {
        answersUntilRoom = expired + outstanding
    }

    /// Nothing of what is not confirmed yet need have reached the client.
    ///
    /// - Returns: how many deliveries that are; each is counted once.
    mutating func writeOff() -> Int {
        defer {
            windows = windows.map { _ in 0 }
            messagesSinceProbe = 0
        }
        return windows.reduce(messagesSinceProbe, +)
    }

    /// How long to wait before the oldest probe expires: asked when the window has closed. Nil when it does not
    /// expire, or is timed already.
    mutating func startTimer() -> Int? {
        guard !hasAnswered, !isOpen, !isTimed, expirationsLeft > 0 else { return nil }
        isTimed = true
        return min(1 << min(Self.expirations - expirationsLeft, 30), Self.maximumSeconds)
    }

    /// The time is over.
    mutating func timedOut() {
        isTimed = false
        guard !hasAnswered, outstanding > 0, expirationsLeft > 0 else { return }
        expirationsLeft -= 1
        expired += 1
        outstanding -= 1
        windows.removeFirst()
        answersUntilRoom = 0
    }

    /// The client sent something of its own.
    mutating func showedLife() {
        expirationsLeft = Self.expirations
    }
}
