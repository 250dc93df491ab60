// SPDX-License-Identifier: Apache-2.0
/// Whether reading is behind what a bus holds for a connection. Nobody but the bus knows.
///
/// The bus is asked something: its answer stands behind all that was there before, so its time tells how much that was.
/// Time is told from outside: there is no clock in here.
struct InboxWatch {
    typealias Instant = SuspendingClock.Instant

    /// What a bus has come to hold it goes on holding, more or less, as long as somebody sends as fast as it can. So
    /// reading must not fall behind by more than this.
    private static let maxBehind = Duration.milliseconds(10)

    private var askedAt: Instant?

    /// Whether the bus is to be asked now: no answer is on its way.
    var mayAsk: Bool { askedAt == nil }

    mutating func asked(at now: Instant) { askedAt = now }

    mutating func answered() { askedAt = nil }

    /// Whether what the bus holds has to wait there.
    func isBehind(at now: Instant) -> Bool { askedAt.map { now - $0 > Self.maxBehind } ?? false }
}
