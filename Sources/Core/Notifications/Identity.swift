// SPDX-License-Identifier: Apache-2.0
/// The identity of a connection's process, as the bus and the kernel reported it at the first call (P1). Unknown parts
/// are nil: they are never guessed.
///
/// All posts of a connection share one instance, so the identity is still known after the connection has left.
public final class Identity: Sendable {
    /// The user of the process, as the bus verified it.
    public let userID: UInt32?
    /// The process, as the bus verified it.
    public let processID: UInt32?
    /// The kernel's short name of the program, which the program can change.
    public let process: String?
    /// The id of the application, as its desktop file is named. It comes from the sandbox or the systemd unit.
    public let application: String?
    /// The application in whose sandbox the process runs, by Flatpak or snap.
    public let sandbox: String?
    /// The systemd unit of the process.
    public let unit: String?
    /// The origin of its posts, as the poster states; nil for this session.
    public let origin: OutsideOrigin?
    /// The size that counts against the limits, in bytes.
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

    /// Returns this identity with an origin, for posts from there.
    public func withOrigin(_ origin: OutsideOrigin) -> Identity {
        Identity(
            userID: userID, processID: processID, process: process, application: application, sandbox: sandbox,
            unit: unit, origin: origin)
    }

    /// The estimated size of the object, its texts and headers, in bytes.
    private static let overhead = 64
}

extension Identity: Equatable {
    public static func == (left: Identity, right: Identity) -> Bool {
        left.userID == right.userID && left.processID == right.processID && left.process == right.process
            && left.application == right.application && left.sandbox == right.sandbox && left.unit == right.unit
            && left.origin == right.origin
    }
}
