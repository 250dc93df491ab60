// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The service's end of a channel's stream: a socket, or its simulation (E7). Nothing here blocks.
///
/// Threads: that of the channel's context.
package protocol ChannelStream: AnyObject {
    /// The descriptor to poll; nil for a simulation, which shows its state in ``ready`` and wakes the loop itself.
    var polled: Int32? { get }
    /// The conditions that hold, if there is no descriptor to poll.
    var ready: PolledSource.Conditions { get }
    /// Whether bytes that are written reach nobody any more.
    var isBroken: Bool { get }
    /// Whether the other end was closed with unread bytes, also before a call has reported that.
    var wasReset: Bool { get }

    /// Reads the bytes that have arrived.
    ///
    /// - Returns: the number of bytes; 0 when no more will arrive; negative when there are none now.
    func receive(into room: UnsafeMutableRawBufferPointer) -> Int
    /// Writes as many bytes as the stream takes.
    ///
    /// - Returns: the number of bytes.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int
    /// Whether the other end has unread bytes.
    var isAnythingUnread: Bool { get }
    /// Prevents the other end from writing. The bytes that it has written can still be read, up to the end.
    func stopReceiving()
    /// Ends the stream in both directions.
    func end()
}
