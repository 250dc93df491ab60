// SPDX-License-Identifier: Apache-2.0
/// The identity of a poster: its process, user, application and sandbox (P1). The driver of the center reads them from
/// the bus and the kernel at the first call of a connection. A part that is unknown is nil, and never guessed.
///
/// All posts of a connection share one instance. It stays with a waiting post after the connection has left.
public final class Identity: Sendable {
    /// The user ID of the process, as the bus verified it.
    public let userID: UInt32?
    /// The process ID, as the bus verified it.
    public let processID: UInt32?
    /// The kernel's short name of the program. The program can change it.
    public let process: String?
    /// The application ID, which is the name of its desktop file without `.desktop`. It comes from the sandbox or the
    /// systemd unit.
    public let application: String?
    /// The application ID that Flatpak or snap states for a process in a sandbox; nil outside of a sandbox.
    public let sandbox: String?
    /// The systemd unit of the process.
    public let unit: String?
    /// The origin that the poster states for its posts; nil for posts of this session.
    public let origin: OutsideOrigin?
    /// The size that counts against the limits of queues, in bytes.
    public let byteCount: Int

    public init(
        userID: UInt32? = nil, processID: UInt32? = nil, process: String? = nil, application: String? = nil,
        sandbox: String? = nil, unit: String? = nil, origin: OutsideOrigin? = nil
    ) {
        self.userID = userID
        self.processID = processID
        self.process = process
        self.application = application
        self.sandbox = sandbox
        self.unit = unit
        self.origin = origin
        byteCount = [process, application, sandbox, unit].reduce(Self.overhead + (origin?.byteCount ?? 0)) {
            $0 + ($1?.utf8.count ?? 0)
        }
    }

    /// Returns this identity with an origin, for a post that the process brings in from another machine or session.
    public func withOrigin(_ origin: OutsideOrigin) -> Identity {
        Identity(
            userID: userID, processID: processID, process: process, application: application, sandbox: sandbox,
            unit: unit, origin: origin)
    }

    /// The estimated size of the object and of the headers of its texts, in bytes.
    private static let overhead = 64
}

extension Identity: Equatable {
    public static func == (left: Identity, right: Identity) -> Bool {
        left.userID == right.userID && left.processID == right.processID && left.process == right.process
            && left.application == right.application && left.sandbox == right.sandbox && left.unit == right.unit
            && left.origin == right.origin
    }
}
