// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The socket of a connection, for sends from other threads. A small message can be written without waking the
/// connection's thread while the connection itself has nothing to write.
///
/// The sender is responsible for the order: messages queued in the connection are written later, or make ``send(_:)``
/// refuse.
///
/// Threads: any.
public final class DirectSender: Sendable {
    private struct State {
        /// The descriptor; nil once the socket is about to be closed.
        var descriptor: Int32?
        /// Whether the connection has unwritten bytes.
        var isBusy: Bool
        var lastSerial = SocketTransport.firstForeignSerial
    }

    private let state: Locked<State>

    /// The maximum size of a message, in bytes. A Unix socket accepts a write of this size completely or not at all.
    private static let maxBytes = 2048

    init(descriptor: Int32, isBusy: Bool) {
        state = Locked(State(descriptor: descriptor, isBusy: isBusy))
    }

    /// Sends a message that expects no reply, if the socket accepts it at once.
    ///
    /// - Returns: Whether the message was written; otherwise no byte of it was.
    public func send(_ message: Message) -> Bool {
        state.withLock { state in
            guard let descriptor = state.descriptor, !state.isBusy else { return false }
            state.lastSerial = state.lastSerial == .max ? SocketTransport.firstForeignSerial : state.lastSerial + 1
            _ = message.numbered { state.lastSerial }
            return message.withMarshalledBytes { bytes in
                guard bytes.count <= Self.maxBytes else { return false }
                let count = sendAtOnce(bytes, to: descriptor)
                if count > 0, count < bytes.count {
                    // No message can follow a partial one. The connection detects the closed socket and is replaced.
                    endSocket(descriptor)
                    state.descriptor = nil
                }
                return count == bytes.count
            }
        }
    }

    // MARK: Interface for the connection

    /// Excludes other writes while `body` runs.
    ///
    /// - Parameter body: Writes, and returns whether unwritten bytes remain.
    func write(_ body: () -> Bool) {
        state.withLock { $0.isBusy = body() }
    }

    /// Ends all sends through this object.
    func close() {
        state.withLock { $0.descriptor = nil }
    }
}
