// SPDX-License-Identifier: Apache-2.0
/// A measurement of whether the bus still holds messages for a connection, so that its reading is behind. Only the bus
/// knows the length of its queue for the connection, and does not report it.
///
/// ``CallQueue`` sends a call to the bus at most every 10 ms. The reply arrives behind all messages that the bus held
/// at that time, so the delay of the reply shows how long reading them took. This type only stores the time of the
/// call. All times are passed in; the type has no clock.
struct InboxWatch {
    typealias Instant = SuspendingClock.Instant

    /// The delay of a reply beyond which reading counts as behind. It is short, because while a sender sends at full
    /// speed the backlog in the bus does not shrink again.
    private static let maxBehind = Duration.milliseconds(10)

    /// The time of the call that has no reply yet; nil while there is none.
    private var askedAt: Instant?

    /// Whether no call is in flight, so that the next one may be sent.
    var mayAsk: Bool { askedAt == nil }

    /// Notes that a call to the bus was sent.
    mutating func asked(at now: Instant) { askedAt = now }

    /// Notes that the reply has arrived.
    mutating func answered() { askedAt = nil }

    /// Whether reading is behind: a call has had no reply for more than ``maxBehind``.
    func isBehind(at now: Instant) -> Bool { askedAt.map { now - $0 > Self.maxBehind } ?? false }
}
