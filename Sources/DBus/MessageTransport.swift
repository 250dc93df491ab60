// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop

/// The input and output of a ``Connection``: ``SocketTransport``, or its replacement on a simulated bus (E7).
///
/// It carries whole messages in order. It knows neither calls nor replies, which the connection matches.
///
/// Threads: all members on the thread that runs the connection's context.
package protocol MessageTransport: AnyObject {
    /// Called with each received message. The last one is the signal `Disconnected` of `org.freedesktop.DBus.Local`
    /// without a sender, which the transport creates when the connection has ended.
    var onMessage: ((Message) -> Void)? { get set }
    /// Called with each method call while its bytes are still in the receive buffer. A call that it accepts is not
    /// delivered to ``onMessage`` (``Connection/onArrivingCall``).
    var onArrivingCall: ((ArrivingCall) -> Bool)? { get set }
    /// Whether messages can still be sent.
    var isConnected: Bool { get }
    /// Sends a message if the transport is connected.
    ///
    /// - Returns: The serial of the message, which is assigned here if necessary.
    @discardableResult
    func send(_ message: Message) -> UInt32
    /// Sends an encoded message; a message without a serial gets the next one.
    func send(_ message: MarshalledMessage)
    /// Sends one of many similar messages; its parameters are those of ``MessageBus/send(_:serial:_:size:rest:)``.
    func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void)
    /// Batches the messages that `body` sends: they are written together (``MessageBus/batchSends(_:)``).
    func batchSends(_ body: () -> Void)
    /// From now on, writes the messages that handlers send in a loop iteration together
    /// (``Connection/batchIterations()``).
    func batchIterations()
    /// Accepts file descriptors in replies; otherwise they are closed on arrival (``Connection/takeDescriptors()``).
    func takeDescriptors()
    /// Whether received messages can carry file descriptors; known when the bus has registered the connection.
    var carriesDescriptors: Bool { get }
    /// The socket for sends from other threads; nil if only the connection's own thread can send.
    var directSender: DirectSender? { get }
    /// Informs the transport of the connection's unique name, which the bus has just assigned.
    func registered(as name: UniqueName)
    /// The maximum total size of received messages that are still alive, in bytes; above it nothing is read.
    var maxReceivedBytes: Int { get set }
    /// Whether delivery of received messages is paused. They stay in the socket.
    var isPaused: Bool { get set }
    /// The socket's descriptor, for inspection only; nil without a socket.
    var socket: Int32? { get }
    /// The number of sent bytes that the socket has not accepted yet.
    var outgoingBytes: Int { get }
}

/// Defaults for simulated transports, which have neither encoded messages nor batches, and always carry descriptors.
extension MessageTransport {
    package var onArrivingCall: ((ArrivingCall) -> Bool)? {
        get { nil }
        set {}
    }
    package func send(_ message: MarshalledMessage) { send(Message(message)) }
    package func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        send(head.message(serial: serial, shared, size: size, rest: rest))
    }
    package func batchSends(_ body: () -> Void) { body() }
    package func batchIterations() {}
    package func takeDescriptors() {}
    package var carriesDescriptors: Bool { true }
    package var directSender: DirectSender? { nil }
    package func registered(as name: UniqueName) {}
}
