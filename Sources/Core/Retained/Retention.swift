// SPDX-License-Identifier: Apache-2.0
/// That the service keeps a notification as the value of its name, object and origin (R1), until a newer one takes its place or
/// somebody removes it, or its time is over (``PostOptions/expiresAfter``).
public struct Retention: Equatable, Sendable {
    /// A bit for each of the properties, from the lowest on. The recovery log has it, so no bit ever changes its meaning.
    public private(set) var flags: UInt8 = 0

    /// - Returns: nil where a bit is set that has no meaning.
    public init?(flags: UInt8) {
        guard flags < 1 << 4 else { return nil }
        self.flags = flags
    }

    public init(
        whileConnected: Bool = false, goesToAllSessions: Bool = false, isFromSession: Bool = false,
        endsWithSession: Bool = false
    ) {
        self.whileConnected = whileConnected
        self.goesToAllSessions = goesToAllSessions
        self.isFromSession = isFromSession
        self.endsWithSession = endsWithSession
    }

    /// Whether it goes when its poster leaves the bus.
    public var whileConnected: Bool {
        get { self[0] }
        set { self[0] = newValue }
    }

    /// Whether other sessions have it as well, also those that come later (R8).
    public var goesToAllSessions: Bool {
        get { self[1] }
        set { self[1] = newValue }
    }

    /// Whether it came from another session of this machine, as its service has told this one (R8).
    public var isFromSession: Bool {
        get { self[2] }
        set { self[2] = newValue }
    }

    /// Of such: whether it is over when that session is.
    public var endsWithSession: Bool {
        get { self[3] }
        set { self[3] = newValue }
    }

    private subscript(bit: UInt8) -> Bool {
        get { flags & 1 << bit != 0 }
        set { flags = newValue ? flags | 1 << bit : flags & ~(1 << bit) }
    }
}

/// A notification that is kept.
struct RetainedValue {
    let notification: Notification
    let retention: Retention
    /// Who pays for it, also when it has left.
    let payer: Peer

    /// What it counts against the limits, in bytes.
    var byteCount: Int { notification.byteCount + Self.overhead }

    /// Entry and places in tables, roughly.
    static let overhead = 128

    var isOfConnection: Bool { retention.whileConnected }

    /// Whether its time is over.
    ///
    /// - Parameter now: ``Clock/uptime``.
    func isOver(at now: Int64) -> Bool { notification.expiry.map { $0 <= now } ?? false }
}
