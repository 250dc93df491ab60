// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The environment of a ``ServiceSession``: it opens connections and provides the clock and timers. ``LoopBus`` is a
/// real bus with a main loop; tests and the simulation replace it.
///
/// Threads: all members are used on the session's thread.
public protocol SessionBus: AnyObject {
    /// Opens a new connection to the bus. The session then sends `Hello`.
    ///
    /// - Throws: the reason why there is no connection.
    func connect() throws(BusError) -> any BusConnection
    /// Opens the byte stream of a channel (F2).
    ///
    /// - Parameter reply: the service's answer, with the descriptor.
    /// - Throws: an error when the answer has no descriptor.
    func channelStream(in reply: Message) throws(BusError) -> any ClientStream
    /// The current time.
    var now: ContinuousClock.Instant { get }
    /// Runs `action` once, from the loop, after this time.
    ///
    /// - Returns: an object whose release cancels the action. `action` itself may release it.
    func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject
}

/// A closure that returns the address of a bus in the syntax of D-Bus, or throws the reason why there is none.
public typealias BusAddress = @Sendable () throws(BusError) -> String

/// A real bus. A main context polls its connections and channels, and runs the timers.
public final class LoopBus: SessionBus {
    private let address: BusAddress
    private let context: MainContext

    /// - Parameter address: returns the bus address; called for every connection, because the address may change.
    public init(address: @escaping BusAddress, context: MainContext) {
        self.address = address
        self.context = context
    }

    public func connect() throws(BusError) -> any BusConnection {
        let connection = try Connection(address: try address(), context: context)
        // The answer to a request for a channel contains a file descriptor.
        connection.takeDescriptors()
        return connection
    }

    public func channelStream(in reply: Message) throws(BusError) -> any ClientStream {
        SocketStream(try OpenChannel.reply(in: reply), context: context)
    }

    public var now: ContinuousClock.Instant { .now }

    public func once(milliseconds: UInt32, _ action: @escaping () -> Void) -> AnyObject {
        EventSource.once(milliseconds: milliseconds, on: context, action: action)
    }
}
