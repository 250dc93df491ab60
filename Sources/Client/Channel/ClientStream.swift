// SPDX-License-Identifier: Apache-2.0
/// The byte stream of a channel between the program and the service (F2): a socket (``SocketStream``), or its
/// replacement in a test or simulation. ``ClientChannel`` reads and closes it; ``ChannelSender`` writes to it. It
/// closes when its last reference is released.
///
/// Threads: all members are used on the session's thread.
public protocol ClientStream: AnyObject {
    /// Called from the loop when the awaited input or space is available, or when the stream has ended.
    var onReady: (() -> Void)? { get set }
    /// Whether the loop waits for input or the end of the stream. Initially false.
    var isReading: Bool { get set }
    /// Whether the loop waits for space in the socket's send buffer.
    var isWaitingForSpace: Bool { get set }

    /// Reads as many available bytes as fit into `buffer`, which is not empty. Does not block.
    func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamReadResult
    /// The writing end, which the session and posting threads use.
    var writing: any ChannelWriting { get }
    /// Ends writing: the other side reads the end of the stream after all bytes written before.
    func endWriting()
}

/// The writing end of the stream. Threads: any, one at a time.
public protocol ChannelWriting: Sendable {
    /// Writes as many of `bytes` as the stream has space for. Does not block.
    func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult
}

/// The result of reading from the stream.
public enum StreamReadResult: Equatable {
    /// The number of bytes read, at least one.
    case bytes(Int)
    /// No input is available yet.
    case nothing
    /// The stream has ended.
    case end
}

/// The result of writing to the stream.
public enum StreamWriteResult: Equatable {
    /// The number of bytes written; smaller than requested when there is no more space.
    case bytes(Int)
    /// The other side has closed the stream, so it takes no bytes.
    case broken
}
