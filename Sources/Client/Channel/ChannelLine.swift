// SPDX-License-Identifier: Apache-2.0
/// The byte stream of a channel between the program and the service (F2): a socket, or its replacement in a test or
/// simulation. It closes when its last reference is released.
///
/// Threads: all members are used on the session's thread.
public protocol ChannelLine: AnyObject {
    /// Called from the loop when the awaited input or space is available, or when the line has ended.
    var onReady: (() -> Void)? { get set }
    /// Whether the line waits for input or its end. Initially false.
    var isReading: Bool { get set }
    /// Whether the line waits for space to write.
    var isWaitingForSpace: Bool { get set }

    /// Reads as many available bytes as fit into `room`, which is not empty. Does not block.
    func read(into room: UnsafeMutableRawBufferPointer) -> LineReading
    /// The writing end, which the session and posting threads use.
    var writing: any ChannelWriting { get }
    /// Ends writing: the other side reads the end of the stream after all bytes written before.
    func endWriting()
}

/// The writing end of a line. Threads: any, one at a time.
public protocol ChannelWriting: Sendable {
    /// Writes as many of `bytes` as there is space for. Does not block.
    func write(_ bytes: UnsafeRawBufferPointer) -> LineWriting
}

public enum LineReading: Equatable {
    /// The number of bytes read, at least one.
    case bytes(Int)
    /// No input is available yet.
    case nothing
    /// The stream has ended.
    case end
}

public enum LineWriting: Equatable {
    /// The number of bytes written; smaller than requested when there is no more space.
    case bytes(Int)
    /// The reader is gone.
    case broken
}
