// SPDX-License-Identifier: Apache-2.0
/// Whether a bus goes on holding for a connection whatever comes, or makes senders wait. Nobody but the bus knows.
///
/// The bus is asked something: its answer stands behind all that was there before, so its time and what has to be read
/// before it comes tell how much that was. Time is told from outside: there is no clock in here.
struct InboxWatch {
    typealias Instant = SuspendingClock.Instant

    /// What a bus that bounds what it keeps of a sender may hold, in bytes.
    private static let mostBounded = 16 << 20
    /// What is held by such a bus is read in less time, unless it is not read on purpose.
    private static let longDelay = Duration.milliseconds(200)
    /// What a bus has come to hold it goes on holding, more or less, as long as somebody sends as fast as it can. So
    /// reading must not fall behind by more than this.
    private static let mostBehind = Duration.milliseconds(50)
    /// So long nothing is read at first.
    private static let firstDelay = Duration.milliseconds(250)
    /// Others are to be served within a second, also where this process does not get all of a processor: not reading, and
    /// reading then what the bus holds, may take so long.
    private static let mostDelay = Duration.milliseconds(600)
    /// For so long what was found out counts.
    private static let memory = Duration.seconds(60)

    private var askedAt: Instant?
    /// What was read since then, in bytes.
    private var bytesRead = 0
    private var foundUnbounded: Instant?
    /// So long nothing may be read, as it looks now.
    private var allowed = firstDelay
    /// When reading went on.
    private var wentOn: Instant?
    /// Whether it is read until the answer comes, as that was late.
    private(set) var isCatchingUp = false

    /// Whether the bus is to be asked now: no answer is on its way.
    var mayAsk: Bool { askedAt == nil }

    mutating func asked(at now: Instant) {
        askedAt = now
        bytesRead = 0
    }

    mutating func answered(at now: Instant) {
        if isCatchingUp, let askedAt, let wentOn {
            // The longer nothing is read, the longer it takes to read what came meanwhile, where there is no bound.
            let (pause, all) = (wentOn - askedAt, now - askedAt)
            allowed = min(pause * min(2, Self.mostDelay / all), Self.mostDelay)
        }
        askedAt = nil
        isCatchingUp = false
    }

    /// So many bytes of calls were read, and not served at once.
    mutating func noteRead(_ byteCount: Int, at now: Instant) {
        bytesRead += byteCount
        if bytesRead > Self.mostBounded, isCatchingUp || delay(at: now) > Self.longDelay { foundUnbounded = now }
    }

    /// Whether what the bus holds has to wait there.
    func isBehind(at now: Instant) -> Bool { delay(at: now) > Self.mostBehind }

    /// Nothing is read meanwhile. Returns whether that has been so for too long: reading goes on then.
    mutating func isLate(at now: Instant) -> Bool {
        guard delay(at: now) > allowed else { return false }
        if !isCatchingUp { wentOn = now }
        isCatchingUp = true
        return true
    }

    /// Whether it makes nobody wait not to read.
    func isUnbounded(at now: Instant) -> Bool { foundUnbounded.map { now - $0 < Self.memory } ?? false }

    /// How long the answer has been on its way.
    private func delay(at now: Instant) -> Duration { askedAt.map { now - $0 } ?? .zero }
}
