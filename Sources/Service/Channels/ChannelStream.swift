// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The service's end of the stream of a channel: a socket, or what a simulation puts in its place (E7). Nothing here waits.
package protocol ChannelStream: AnyObject {
    /// What is polled for it; nil where ``ready`` tells, and whoever plays the stream has the loop turn.
    var polled: Int32? { get }
    /// What could be done without waiting, where nothing is polled.
    var ready: PolledSource.Conditions { get }
    /// Whether nothing that is written arrives any more.
    var isBroken: Bool { get }
    /// Whether the other end was closed with something unread in it, also where no call has met that yet.
    var wasReset: Bool { get }

    /// Reads what is there.
    ///
    /// - Returns: how many bytes; 0 when nothing more will come; less when there is nothing now.
    func receive(into room: UnsafeMutableRawBufferPointer) -> Int
    /// Writes what there is room for.
    ///
    /// - Returns: how many bytes.
    func send(_ bytes: UnsafeRawBufferPointer) -> Int
    /// Whether something that was written lies unread in the other end.
    var isAnythingUnread: Bool { get }
    /// From now on the other end can't write. What it has written can still be read, up to its end.
    func stopReceiving()
    /// The same in both directions.
    func end()
}
