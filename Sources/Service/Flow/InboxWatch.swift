// SPDX-License-Identifier: Apache-2.0
/// A probe of the bus's queue for a connection: it shows whether reading is behind. Only the bus knows the length of
/// that queue.
///
/// The connection calls the bus. The reply arrives behind all messages that the bus held by then, so the delay of the
/// reply shows how many there were. All times are passed in; the type has no clock.
struct InboxWatch {
    typealias Instant = SuspendingClock.Instant

    /// The delay of a reply beyond which reading counts as behind. It is short because the backlog of a bus stays about
    /// as large as it has become while a sender sends at full speed.
    private static let maxBehind = Duration.milliseconds(10)

    private var askedAt: Instant?

    /// Whether no call is in flight, so that the next one may be sent.
    var mayAsk: Bool { askedAt == nil }

    mutating func asked(at now: Instant) { askedAt = now }

    mutating func answered() { askedAt = nil }

    /// Whether reading is behind, so that messages wait in the bus.
    func isBehind(at now: Instant) -> Bool { askedAt.map { now - $0 > Self.maxBehind } ?? false }
}
