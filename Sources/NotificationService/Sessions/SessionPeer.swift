// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// Another session, as it announced itself on the system bus.
final class SessionPeer {
    let name: UniqueName
    /// As the bus verified it; nil until it has answered.
    var userID: UInt32?
    /// What it takes from this user.
    var wants: [NamePattern] = []
    /// What it was told that this session takes from its user; nil where that is not known.
    var told: [String]? = []
    /// What goes there.
    var line = SessionLine<ExportedNotification>(SessionPeer.bounds)
    /// The number of the last that came from there.
    var lastNumber: UInt64 = 0
    var received: UInt64 = 0
    /// Lost on the way from there.
    var lostThere: UInt64 = 0
    /// Confirms what came, when all that is at hand has been taken.
    var confirmation: EventSource?
    /// Runs while nothing is confirmed and something waits.
    var doubt: EventSource?
    /// How often in a row nothing was.
    var doubts: UInt32 = 0
    /// Broadcasts that it is answered.
    var answers = RateLimit(perSecond: 1, burst: 2)

    /// A window keeps the bus's part small: 64 sessions are 16 MiB of its 127 for a connection. What waits is shared among
    /// all that wait for it.
    private static let bounds = SessionLine<ExportedNotification>.Bounds(
        window: (count: 64, bytes: 256 << 10), queue: (count: 512, bytes: 1 << 20))

    init(_ name: UniqueName) {
        self.name = name
    }

    /// All that waits for it is lost, and what it is sent later is counted from the beginning of its next stay.
    func leavePlace() {
        (confirmation, doubt) = (nil, nil)
        line.clear()
        told = nil
    }

    /// Drops what takes much room: many sessions are remembered without a place.
    func forgetMuch() {
        if wants.reduce(0, { $0 + $1.description.utf8.count }) > Self.mostBytesRemembered { wants = [] }
    }

    private static let mostBytesRemembered = 1024

    var shown: [String: PropertyList] {
        var shown: [String: PropertyList] = [
            "name": .string(name.rawValue),
            "state": .string(userID == nil ? "asking" : line.isBlocked ? "waiting" : "open"),
            "queued": .uint32(UInt32(line.waitingCount)), "sent": .uint64(line.sent),
            "received": .uint64(received), "lost": .uint64(line.lost &+ lostThere),
            "wants": .array(wants.map { .string($0.description) }),
        ]
        if let userID { shown["uid"] = .uint32(userID) }
        return shown
    }
}
