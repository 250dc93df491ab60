// SPDX-License-Identifier: Apache-2.0
/// Who is behind a connection, as the bus and the kernel told when it called first (P1). What nothing tells is nil: it is
/// never guessed.
///
/// One instance is shared by all that the connection posts, so that it is still known when the connection has left.
public final class Identity: Sendable {
    /// The user of the process, as the bus verified it.
    public let userID: UInt32?
    /// The process, as the bus verified it.
    public let processID: UInt32?
    /// The kernel's short name of the program, which the program can change.
    public let process: String?
    /// The id of the application, as its desktop file is named: that of its sandbox, or that of its systemd unit.
    public let application: String?
    /// The application in whose sandbox it runs, by Flatpak or snap.
    public let sandbox: String?
    /// The systemd unit that it runs in.
    public let unit: String?
    /// Where what it posted comes from, when that is not this session; by its own word.
    public let origin: OutsideOrigin?
    /// What it counts where it waits, in bytes.
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

    /// Whoever this is, with what it brought from there.
    public func withOrigin(from origin: OutsideOrigin) -> Identity {
        Identity(
            userID: userID, processID: processID, process: process, application: application, sandbox: sandbox,
            unit: unit, origin: origin)
    }

    /// Object, texts and headers, roughly.
    private static let overhead = 64
}

extension Identity: Equatable {
    public static func == (left: Identity, right: Identity) -> Bool {
        left.userID == right.userID && left.processID == right.processID && left.process == right.process
            && left.application == right.application && left.sandbox == right.sandbox && left.unit == right.unit
            && left.origin == right.origin
    }
}
