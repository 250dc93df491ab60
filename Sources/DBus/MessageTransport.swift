// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop

/// The transport of the messages of a ``Connection``: a socket, or its replacement in a simulation (E7).
///
/// Threads: all members on the thread that runs the connection's context.
package protocol MessageTransport: AnyObject {
    /// Receives each message, and at the end the signal `Disconnected` of `org.freedesktop.DBus.Local`, without a
    /// sender.
    var onMessage: ((Message) -> Void)? { get set }
    /// See ``Connection/onArrivingCall``.
    var onArrivingCall: ((ArrivingCall) -> Bool)? { get set }
    var isConnected: Bool { get }
    /// Sends a message if the transport is connected.
    ///
    /// - Returns: The serial of the message, which is assigned here if necessary.
    @discardableResult
    func send(_ message: Message) -> UInt32
    /// Sends an encoded message that has a serial.
    func send(_ message: MarshalledMessage)
    /// See ``MessageBus/send(_:serial:_:size:rest:)``.
    func send(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void)
    /// Batches the messages sent by `body`, which may be written together at its end.
    func gather(_ body: () -> Void)
    /// See ``Connection/gatherTurns()``.
    func gatherTurns()
    /// See ``Connection/takeDescriptors()``.
    func takeDescriptors()
    /// See ``BusConnection/carriesDescriptors``.
    var carriesDescriptors: Bool { get }
    /// See ``BusConnection/directSender``.
    var directSender: DirectSender? { get }
    /// Informs the transport of the connection's unique name.
    func registered(as name: UniqueName)
    /// See ``Connection/maxReceivedBytes``.
    var maxReceivedBytes: Int { get set }
    /// See ``Connection/isPaused``.
    var isPaused: Bool { get set }
    /// See ``Connection/socket``.
    var socket: Int32? { get }
    /// See ``Connection/outgoingBytes``.
    var outgoingBytes: Int { get }
}

/// Defaults for transports without encoded messages or batching.
extension MessageTransport {
    package var onArrivingCall: ((ArrivingCall) -> Bool)? {
        get { nil }
        set {}
    }
    package func send(_ message: MarshalledMessage) { send(Message(message)) }
    package func send(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        send(head.message(serial: serial, shared, size: size, rest: rest))
    }
    package func gather(_ body: () -> Void) { body() }
    package func gatherTurns() {}
    package func takeDescriptors() {}
    package var carriesDescriptors: Bool { true }
    package var directSender: DirectSender? { nil }
    package func registered(as name: UniqueName) {}
}
