// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The source of connections and time for a ``ServiceSession``: a bus and a main loop, or their replacement in a test
/// or simulation.
///
/// Threads: all members are used on the session's thread.
public protocol SessionBus: AnyObject {
    /// Opens a new connection to the bus, which has not said hello yet.
    ///
    /// - Throws: the reason why there is no connection.
    func connect() throws(BusError) -> any BusConnection
    /// Opens the byte stream of a channel (F2).
    ///
    /// - Parameter reply: the service's answer, with the descriptor.
    /// - Throws: an error when the answer has no descriptor.
    func channelLine(in reply: Message) throws(BusError) -> any ChannelLine
    var now: ContinuousClock.Instant { get }
    /// Runs `action` once, from the loop.
    ///
    /// - Returns: an object whose release cancels the action. `action` itself may release it.
    func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject
}

/// The address of a bus, in the syntax of D-Bus, or the error why there is none.
public typealias BusAddress = @Sendable () throws(BusError) -> String

/// A real bus, driven by a main context.
public final class LoopBus: SessionBus {
    private let address: BusAddress
    private let context: MainContext

    /// - Parameter address: called again for every connection.
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
