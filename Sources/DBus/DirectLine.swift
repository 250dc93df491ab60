// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The socket of a connection, for threads that do not run its loop: while the connection has nothing to write itself, a
/// small message can leave without waking its thread.
///
/// Whoever sends here sees to the order: what the connection was asked to send before, and has not written, comes later
/// or makes this refuse.
///
/// Threads: any.
public final class DirectLine: Sendable {
    private struct State {
        /// Nil when it is about to be closed.
        var descriptor: Int32?
        /// Whether the connection has begun to write something, and not ended.
        var isBusy: Bool
        var lastSerial = SocketTransport.firstForeignSerial
    }

    private let state: Locked<State>

    /// A Unix socket takes so little as a whole or not at all.
    private static let maxBytes = 2048

    init(descriptor: Int32, isBusy: Bool) {
        state = Locked(State(descriptor: descriptor, isBusy: isBusy))
    }

    /// Sends a message to which no answer is expected, if that is possible at once.
    ///
    /// - Returns: whether it left. Otherwise nothing of it did.
    public func send(_ message: Message) -> Bool {
        state.withLock { state in
            guard let descriptor = state.descriptor, !state.isBusy else { return false }
            state.lastSerial = state.lastSerial == .max ? SocketTransport.firstForeignSerial : state.lastSerial + 1
            _ = message.numbered { state.lastSerial }
            return message.withMarshalledBytes { bytes in
                guard bytes.count <= Self.maxBytes else { return false }
                let count = sendAtOnce(bytes, to: descriptor)
                if count > 0, count < bytes.count {
                    // No message can follow half a message. The connection finds that out, and makes another.
                    endSocket(descriptor)
                    state.descriptor = nil
                }
                return count == bytes.count
            }
        }
    }

    // MARK: For the connection

    /// Nothing else is written while `body` runs.
    ///
    /// - Parameter body: writes, and returns whether there is a rest.
    func write(_ body: () -> Bool) {
        state.withLock { $0.isBusy = body() }
    }

    /// Nothing is sent here from now on.
    func close() {
        state.withLock { $0.descriptor = nil }
    }
}
