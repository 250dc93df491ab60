// SPDX-License-Identifier: Apache-2.0
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The transport of notifications between a program and the service (F2).
public enum Transport: String, Hashable, Sendable, CaseIterable {
    /// Over the bus, where its monitors see them.
    case bus
    /// Over a private socket between the program and the service, which the program requests over the bus. All other
    /// messages stay on the bus.
    case channel

    /// The wish of the user who runs the program, from `CARILLON_TRANSPORT`; nil when the variable is unset or has
    /// another value.
    public static var ofEnvironment: Transport? {
        getenv(environmentVariable).flatMap { Transport(rawValue: String(cString: $0)) }
    }

    public static let environmentVariable = "CARILLON_TRANSPORT"
}

/// The wished transport. Threads: any.
public final class TransportWish: Sendable {
    /// The wish of the user who runs the program; it takes precedence over the program's wish.
    public let ofUser: Transport?
    private let isChannel: Atomic<Bool>

    public init(_ ofProgram: Transport = .bus, ofUser: Transport? = nil) {
        isChannel = Atomic(ofProgram == .channel)
        self.ofUser = ofUser
    }

    public var ofProgram: Transport {
        get { isChannel.load(ordering: .relaxed) ? .channel : .bus }
        set { isChannel.store(newValue == .channel, ordering: .relaxed) }
    }

    /// The effective transport.
    public var value: Transport { ofUser ?? ofProgram }
}
