// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The service's end of a channel's byte stream: a socket (``ChannelSocket``), or its simulation in tests (E7). Nothing
/// here blocks.
///
/// Threads: only that of the service's main loop.
package protocol ChannelStream: AnyObject {
    /// The descriptor to poll; nil for a simulation, which shows its state in ``ready`` and wakes the loop itself.
    var polled: Int32? { get }
    /// The conditions that hold in a simulation; empty for a socket, which is polled instead.
    var ready: PolledSource.Conditions { get }
    /// Whether a call has found that the other end is closed, so that written bytes reach nobody any more.
    var isBroken: Bool { get }
    /// Whether the other end was closed with unread bytes. It is found even if no read or write has reported it before.
    var wasReset: Bool { get }

    /// Reads the bytes that have arrived.
    ///
    /// - Returns: the number of bytes; 0 when no more will arrive; negative when there are none now.
    func receive(into buffer: UnsafeMutableRawBufferPointer) -> Int
    /// Writes as many bytes as the stream takes.
    ///
    /// - Returns: the number of bytes.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int
    /// Whether the other end has unread bytes.
    var isAnythingUnread: Bool { get }
    /// Prevents the other end from writing. The bytes that it has written can still be read, up to the end.
    func stopReceiving()
    /// Ends the stream in both directions. The other end can still read the bytes that were written.
    func end()
}
