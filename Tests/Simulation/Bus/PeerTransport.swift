// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop

/// What carries the messages of a ``Connection`` of a simulated process: reads from the bus when the process's loop gets
/// to it, a bounded number in a turn, as the driver of libdbus does.
final class PeerTransport: MessageTransport, PolledSourceDelegate {
    var onMessage: ((Message) -> Void)?
    var onArrivingCall: ((ArrivingCall) -> Bool)?
    var maxReceivedBytes = 63 << 20
    var isPaused = false
    let socket: Int32? = nil
    let outgoingBytes = 0
    let peer: Peer
    private let process: LoopProcess
    private var source: PolledSource!
    private var isDisconnectTold = false
    /// Told the name that the bus gave.
    var onName: ((UniqueName) -> Void)?

    /// What a message costs its reader and its sender, in microseconds.
    private static let messageCost: Int64 = 6

    init(_ peer: Peer, of process: LoopProcess, priority: EventSource.Priority) {
        self.peer = peer
        self.process = process
        source = PolledSource(delegate: self, priority: priority, context: process.context)
        peer.onReadable = { [weak process] in process?.wake() }
    }

    deinit {
        if !process.isDead { peer.close(losing: false) }
    }

    var isConnected: Bool { peer.isOpen }

    func send(_ message: Message) -> UInt32 {
        process.spend(Self.messageCost)
        guard peer.isOpen, process.operate() else { return message.numbered { 1 } }
        return peer.send(message)
    }

    func send(_ message: MarshalledMessage) {
        process.spend(Self.messageCost)
        guard peer.isOpen, process.operate() else { return }
        peer.send(message)
    }

    func registered(as name: UniqueName) { onName?(name) }

    // MARK: The loop

    func hasPendingWork() -> Bool {
        !isPaused && (peer.hasMessage || peer.hasEnded && !isDisconnectTold)
    }

    func dispatch() {
        for _ in 0..<Connection.messagesPerIteration where !isPaused {
            guard !process.isDead else { return }
            guard let message = peer.receive() else { break }
            process.spend(Self.messageCost)
            if let onArrivingCall, message.withArrivingCall(onArrivingCall) == true { continue }
            onMessage?(message)
        }
        guard peer.hasEnded, !isDisconnectTold, !process.isDead else { return }
        isDisconnectTold = true
        let signal = Message.signal(
            path: "/org/freedesktop/DBus/Local", interface: "org.freedesktop.DBus.Local", member: "Disconnected")
        onMessage?(signal.carried(from: nil, serial: 1))
    }
}
