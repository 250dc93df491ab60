// SPDX-License-Identifier: Apache-2.0
/// The retention of a notification (R1): the properties of the value that the service keeps for its name, object and
/// origin, for observers that register later. They decide when the value ends and which sessions get it.
///
/// Any value also ends when a newer one replaces it, when a client removes it, or when it expires
/// (``PostOptions/expiresAfter``).
public struct Retention: Equatable, Sendable {
    /// The properties, one bit each. The recovery log has this byte, so no bit ever changes its meaning.
    public private(set) var flags: UInt8 = 0

    /// Restores a retention from the recovery log.
    ///
    /// - Returns: nil if a bit without a meaning is set.
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

    /// Whether the value ends when its poster leaves the bus (option `while-connected`).
    public var whileConnected: Bool {
        get { self[0] }
        set { self[0] = newValue }
    }

    /// Whether the other sessions of the machine get the value as well, including sessions that begin later (R8).
    public var goesToAllSessions: Bool {
        get { self[1] }
        set { self[1] = newValue }
    }

    /// Whether the value came from another session of this machine, as reported by that session's service (R8).
    public var isFromSession: Bool {
        get { self[2] }
        set { self[2] = newValue }
    }

    /// Whether a value from another session ends with that session.
    public var endsWithSession: Bool {
        get { self[3] }
        set { self[3] = newValue }
    }

    private subscript(bit: UInt8) -> Bool {
        get { flags & 1 << bit != 0 }
        set { flags = newValue ? flags | 1 << bit : flags & ~(1 << bit) }
    }
}

/// A retained notification, as ``RetainedValues`` stores it.
struct RetainedValue {
    let notification: Notification
    let retention: Retention
    /// The peer that is charged for the value, also after it has left.
    let payer: Peer

    /// The size that counts against the limits, in bytes.
    var byteCount: Int { notification.byteCount + Self.overhead }

    /// The estimated size of an entry and its index entries, in bytes.
    static let overhead = 128

    /// Whether the value ends when its poster leaves the bus.
    var isWhileConnected: Bool { retention.whileConnected }

    /// Whether the value has expired.
    ///
    /// - Parameter now: ``Clock/uptime``.
    func isOver(at now: Int64) -> Bool { notification.expiry.map { $0 <= now } ?? false }
}
