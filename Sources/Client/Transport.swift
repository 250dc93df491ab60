// SPDX-License-Identifier: Apache-2.0
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The transport of notifications between a program and the service (F2).
public enum Transport: String, Hashable, Sendable, CaseIterable {
    /// Over the bus, where monitors of the bus (`dbus-monitor`) see them.
    case bus
    /// Over a private socket between the program and the service, which the program requests over the bus. All other
    /// messages stay on the bus.
    case channel

    /// The transport that the program's user requests by the variable `CARILLON_TRANSPORT`; nil when the variable is
    /// unset or has another value.
    public static var ofEnvironment: Transport? {
        getenv(environmentVariable).flatMap { Transport(rawValue: String(cString: $0)) }
    }

    /// The name of this environment variable.
    public static let environmentVariable = "CARILLON_TRANSPORT"
}

/// The requested transport of a session: the user's request by the environment, or otherwise the program's. The program
/// may change it at any time. Threads: any.
public final class TransportPreference: Sendable {
    /// The request of the program's user; it takes precedence over the program's request. Nil for none.
    public let ofUser: Transport?
    private let isChannel: Atomic<Bool>

    public init(_ ofProgram: Transport = .bus, ofUser: Transport? = nil) {
        isChannel = Atomic(ofProgram == .channel)
        self.ofUser = ofUser
    }

    /// The program's request.
    public var ofProgram: Transport {
        get { isChannel.load(ordering: .relaxed) ? .channel : .bus }
        set { isChannel.store(newValue == .channel, ordering: .relaxed) }
    }

    /// The requested transport. The session uses a channel only if the service provides one.
    public var value: Transport { ofUser ?? ofProgram }
}
