// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The implementations of the message bus that tests run on.
public enum BusKind: String, CaseIterable, Sendable, CustomStringConvertible {
    /// The reference implementation.
    case dbusDaemon = "dbus-daemon"
    /// The implementation of bus1, the default of several distributions.
    case dbusBroker = "dbus-broker"

    public var description: String {
        rawValue
    }

    /// The kinds that can be started on this machine: each is really started once. The reason for what is left out goes
    /// to standard error, so that no test run leaves out a bus in silence.
    public static let available: [BusKind] = allCases.filter { kind in
        guard let reason = kind.reasonUnavailable else {
            return true
        }
        FileHandle.standardError.write(Data("Tests on \(kind) are skipped: \(reason)\n".utf8))
        return false
    }

    /// Why this kind can't be started on this machine; nil if it can.
    public var reasonUnavailable: String? {
        switch self {
        case .dbusDaemon: Self.reasons.dbusDaemon
        case .dbusBroker: Self.reasons.dbusBroker
        }
    }

    private static let reasons = (dbusDaemon: startUp(.dbusDaemon), dbusBroker: startUp(.dbusBroker))

    private static func startUp(_ kind: BusKind) -> String? {
        guard Command.find(kind.rawValue) != nil else {
            return "\(kind.rawValue) is not installed"
        }
        do {
            try PrivateBus(kind).stop()
            return nil
        } catch {
            return "\(error)"
        }
    }
}
