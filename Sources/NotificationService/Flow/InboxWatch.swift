/// Whether a bus goes on holding for a connection whatever comes, or makes senders wait. Nobody but the bus knows.
///
/// The bus is asked something: its answer stands behind all that was there before, so its time and what has to be read
/// before it comes tell how much that was. Time is told from outside: there is no clock in here.
struct InboxWatch {
    typealias Instant = SuspendingClock.Instant

    /// What a bus that bounds what it keeps of a sender may hold, in bytes.
    private static let mostBounded = 16 << 20
    /// What is held by such a bus is read in less time, unless it is not read on purpose.
    private static let longDelay = Duration.milliseconds(300)
    /// Others are to be served within a second, and what the bus holds has to be read before.
    private static let mostDelay = Duration.milliseconds(500)
    /// The same where it is known that what it holds is bounded.
    private static let mostDelayWhereBounded = Duration.seconds(1)
    /// For so long what was found out counts.
    private static let memory = Duration.seconds(60)

    private var askedAt: Instant?
    /// What was read since then, in bytes.
    private var bytesRead = 0
    private var foundBounded: Instant?
    private var foundUnbounded: Instant?
    /// Whether it is read until the answer comes, as that was late.
    private(set) var isCatchingUp = false

    /// Whether the bus is to be asked now: no answer is on its way.
    var mayAsk: Bool { askedAt == nil }

    mutating func asked(at now: Instant) {
        askedAt = now
        bytesRead = 0
    }

    mutating func answered(at now: Instant) {
        if isCatchingUp, !isUnbounded(at: now) { foundBounded = now }
        askedAt = nil
        isCatchingUp = false
    }

    /// So many bytes of calls were read, and not served at once.
    mutating func noteRead(_ byteCount: Int, at now: Instant) {
        bytesRead += byteCount
        if bytesRead > Self.mostBounded, isCatchingUp || isLong(at: now) { foundUnbounded = now }
    }

    /// Whether what the bus holds has to wait there for long.
    func isLong(at now: Instant) -> Bool { delay(at: now) > Self.longDelay }

    /// Nothing is read meanwhile. Returns whether that has been so for too long: reading goes on then.
    mutating func isLate(at now: Instant) -> Bool {
        let most = isRecent(foundBounded, at: now) ? Self.mostDelayWhereBounded : Self.mostDelay
        guard delay(at: now) > most else { return false }
        isCatchingUp = true
        return true
    }

    /// Whether it makes nobody wait not to read.
    func isUnbounded(at now: Instant) -> Bool { isRecent(foundUnbounded, at: now) }

    /// How long the answer has been on its way.
    private func delay(at now: Instant) -> Duration { askedAt.map { now - $0 } ?? .zero }

    private func isRecent(_ time: Instant?, at now: Instant) -> Bool {
        time.map { now - $0 < Self.memory } ?? false
    }
}
