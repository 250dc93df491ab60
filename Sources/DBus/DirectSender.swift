// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The socket of a connection, for sends from any thread. A posting thread writes a small message itself, so that the
/// connection's thread does not have to wake up. The outbox of the client library uses it. It exists only for Unix
/// sockets, because a TCP socket may accept a part of a small message.
///
/// It refuses a message while the connection has unwritten bytes, so that no message splits another one. The caller is
/// responsible for the order of its messages: a message that it queues elsewhere for the connection's thread may be
/// written later than a message sent here.
///
/// Threads: any.
public final class DirectSender: Sendable {
    private struct State {
        /// The descriptor; nil once the socket is about to be closed.
        var descriptor: Int32?
        /// Whether the connection has unwritten bytes.
        var isBusy: Bool
        /// The serial of the last message. Serials of the upper half never equal those of the connection itself.
        var lastSerial = SocketTransport.firstForeignSerial
    }

    private let state: Locked<State>

    /// The maximum size of a message, in bytes. A Unix socket accepts a write of this size completely or not at all, so
    /// that no rest of it has to be queued.
    private static let maxBytes = 2048

    init(descriptor: Int32, isBusy: Bool) {
        state = Locked(State(descriptor: descriptor, isBusy: isBusy))
    }

    /// Sends a message that expects no reply, if the socket accepts it at once.
    ///
    /// - Returns: Whether the whole message was written; otherwise the bus does not get it.
    public func send(_ message: Message) -> Bool {
        state.withLock { state in
            guard let descriptor = state.descriptor, !state.isBusy else { return false }
            state.lastSerial = state.lastSerial == .max ? SocketTransport.firstForeignSerial : state.lastSerial + 1
            _ = message.numbered { state.lastSerial }
            return message.withMarshalledBytes { bytes in
                guard bytes.count <= Self.maxBytes else { return false }
                let count = sendAtOnce(bytes, to: descriptor)
                if count > 0, count < bytes.count {
                    // A Unix socket does not accept a part. If one did nevertheless, no message could follow the part:
                    // the connection detects the shutdown, and its owner connects again.
                    endSocket(descriptor)
                    state.descriptor = nil
                }
                return count == bytes.count
            }
        }
    }

    // MARK: Interface for the connection

    /// Excludes sends of other threads while the connection writes.
    ///
    /// - Parameter body: Writes, and returns whether unwritten bytes remain. While they remain, ``send(_:)`` refuses.
    func write(_ body: () -> Bool) {
        state.withLock { $0.isBusy = body() }
    }

    /// Ends all sends through this object, because the socket closes or libdbus begins to write to it.
    func close() {
        state.withLock { $0.descriptor = nil }
    }
}
