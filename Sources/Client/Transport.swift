// SPDX-License-Identifier: Apache-2.0
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The way that notifications take between a program and the service (F2).
public enum Transport: String, Hashable, Sendable, CaseIterable {
    /// Over the bus, where its monitors see them.
    case bus
    /// Over a socket of the program's own with the service, which it asks for over the bus. All else stays on the bus.
    case channel

    /// The word of whoever runs the program: what `CARILLON_TRANSPORT` says; nil where it is not set, or is neither.
    public static var ofEnvironment: Transport? {
        getenv(environmentVariable).flatMap { Transport(rawValue: String(cString: $0)) }
    }

    public static let environmentVariable = "CARILLON_TRANSPORT"
}

/// Which transport is wished for. Threads: any.
public final class TransportWish: Sendable {
    /// Of whoever runs the program; it counts more than that of the program.
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

    /// What holds.
    public var value: Transport { ofUser ?? ofProgram }
}
