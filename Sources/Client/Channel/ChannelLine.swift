// SPDX-License-Identifier: Apache-2.0
/// What carries a channel's bytes to the service and back (F2): a socket, or what a test or a simulation puts in its
/// place. It ends when nobody holds it.
///
/// Threads: everything on the session's.
public protocol ChannelLine: AnyObject {
    /// Called from the loop when what is waited for is there, or the line has ended.
    var onReady: (() -> Void)? { get set }
    /// Whether something to read, or the end, is waited for. At first it is not.
    var isReading: Bool { get set }
    /// Whether room to write is waited for.
    var isWaitingForRoom: Bool { get set }

    /// Reads into `room`, which is not empty, as much as there is and fits. Waits for nothing.
    func read(into room: UnsafeMutableRawBufferPointer) -> LineReading
    /// Where the session, and who posts, write.
    var writing: any ChannelWriting { get }
    /// Nothing more is written: the other side reads the end behind all that was.
    func endWriting()
}

/// The end of a line that is written to. Threads: any, one at a time.
public protocol ChannelWriting: Sendable {
    /// Writes as much of `bytes` as there is room for. Waits for nothing.
    func write(_ bytes: UnsafeRawBufferPointer) -> LineWriting
}

public enum LineReading: Equatable {
    /// So many, at least one.
    case bytes(Int)
    /// There is nothing yet.
    case nothing
    /// Nothing more will come.
    case end
}

public enum LineWriting: Equatable {
    /// So many; fewer than there are where there is no room for more.
    case bytes(Int)
    /// Nobody will read what is written.
    case broken
}
