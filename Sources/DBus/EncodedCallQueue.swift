// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// A first-in, first-out queue of calls in one contiguous buffer of their encoded bytes, without an allocation per
/// call. The service's call queue keeps consecutive calls of one connection in it during a flood.
///
/// The buffer only grows: the memory of removed calls is released with the whole queue. The owner therefore limits
/// ``byteCount`` and starts a new queue above its limit. Threads: one at a time.
public struct EncodedCallQueue {
    private var bytes: [UInt8] = []
    /// The offset of the first call that was not removed.
    private var first = 0
    /// The number of queued calls.
    public private(set) var count = 0

    public init() {}

    public var isEmpty: Bool { count == 0 }
    /// The size of the buffer, in bytes: the encoded calls in the queue, and those already removed.
    public var byteCount: Int { bytes.count }

    /// Adds a copy of a call at the end.
    public mutating func append(_ call: ArrivingCall) {
        bytes.append(contentsOf: call.bytes)
        count += 1
    }

    /// Adds a copy of a message at the end.
    ///
    /// - Returns: Whether the message was added; false if it cannot be an ``ArrivingCall``.
    public mutating func append(_ message: Message) -> Bool {
        message.withArrivingCall { append($0) } != nil
    }

    /// Removes and returns the first call; nil if the queue is empty.
    public mutating func popFirst() -> Message? {
        guard !isEmpty else { return nil }
        let call = bytes.withUnsafeBytes { bytes in
            let rest = UnsafeRawBufferPointer(rebasing: bytes[first...])
            // The header was checked when the call was added.
            let length = (try? MessageHeader.byteCount(of: rest)) ?? rest.count
            return [UInt8](rest[..<length])
        }
        first += call.count
        count -= 1
        return Message(arrived: call)
    }
}
