// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Where a ``ServiceSession`` gets its connections and its time from: a bus and a main loop, or what a test or a
/// simulation puts in their place.
///
/// Threads: everything on the session's.
public protocol SessionBus: AnyObject {
    /// A new connection to the bus, which has not said hello yet.
    ///
    /// - Throws: why there is none.
    func connect() throws(BusError) -> any BusConnection
    /// What carries the bytes of a channel (F2).
    ///
    /// - Parameter reply: the service's answer, with the descriptor.
    /// - Throws: when there is none.
    func channelLine(in reply: Message) throws(BusError) -> any ChannelLine
    var now: ContinuousClock.Instant { get }
    /// Runs `action` once, from the loop.
    ///
    /// - Returns: what calls it off when it goes away. `action` itself may let go of it.
    func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject
}

/// The address of a bus, in the syntax of D-Bus, or why there is none.
public typealias BusAddress = @Sendable () throws(BusError) -> String

/// A real bus, driven by a main context.
public final class LoopBus: SessionBus {
    private let address: BusAddress
    private let context: MainContext

    /// - Parameter address: asked anew for every connection.
    public init(address: @escaping BusAddress, context: MainContext) {
        self.address = address
        self.context = context
    }

    public func connect() throws(BusError) -> any BusConnection {
        let connection = try Connection(address: try address(), context: context)
        connection.takeDescriptors()
        return connection
    }

    public func channelLine(in reply: Message) throws(BusError) -> any ChannelLine {
        SocketLine(try OpenChannel.reply(in: reply), context: context)
    }

    public var now: ContinuousClock.Instant { .now }

    public func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject {
        EventSource.once(milliseconds: milliseconds, on: context, action: action)
    }
}
