// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The output buffer of a channel: frames are appended in encoded form, and ``write(_:)`` passes the bytes to the
/// socket. The service and the client each have one for a channel.
public final class ChannelFrameWriter {
    /// The minimum size of the buffer, in bytes.
    private static let minSize = 4 << 10
    /// The maximum size of an empty buffer that is not released, in bytes.
    private static let maxKept = 64 << 10

    /// The buffer, with unwritten bytes from `first` to `end`.
    private var buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var (first, end) = (0, 0)
    /// The total number of bytes that `write` has passed on since creation.
    public private(set) var written: UInt64 = 0

    public init() {}

    deinit {
        buffer.deallocate()
    }

    /// The number of unwritten bytes.
    public var byteCount: Int { end - first }

    /// The offset of the next appended byte in the whole stream. The owner knows that a frame was sent when `written`
    /// reaches the position behind it.
    public var position: UInt64 { written + UInt64(byteCount) }

    /// Passes the unwritten bytes to `sink`, which returns the number of bytes that it accepted.
    public func write(_ sink: (UnsafeRawBufferPointer) -> Int) {
        guard byteCount > 0 else { return }
        let count = sink(UnsafeRawBufferPointer(rebasing: buffer[first..<end]))
        precondition(count >= 0 && count <= byteCount, "no more can be written than there is")
        written += UInt64(count)
        first += count
        guard first == end else { return }
        (first, end) = (0, 0)
        guard buffer.count > Self.maxKept else { return }
        buffer.deallocate()
        buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    }

    /// Releases the memory of an empty buffer.
    public func releaseMemory() {
        guard byteCount == 0, buffer.count > 0 else { return }
        buffer.deallocate()
        buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        (first, end) = (0, 0)
    }

    /// Appends a frame.
    ///
    /// - Parameters:
    ///   - number: The number in the header.
    ///   - size: The maximum size of the body, in bytes.
    ///   - body: Appends the values of the body, which must have the types of the kind.
    public func append(
        _ kind: ChannelFrame.Kind, number: UInt64, atMost size: Int, _ body: (inout MarshalledBytes) -> Void
    ) {
        makeSpace(for: ChannelFrame.headerSize + size)
        let start = end + ChannelFrame.headerSize
        let length = MarshalledBytes.marshal(
            in: UnsafeMutableRawBufferPointer(rebasing: buffer[start..<start + size]), body)
        buffer.storeBytes(of: UInt32(length), toByteOffset: end, as: UInt32.self)
        buffer.storeBytes(of: kind.rawValue, toByteOffset: end + 4, as: UInt32.self)
        buffer.storeBytes(of: number, toByteOffset: end + 8, as: UInt64.self)
        end = start + length
    }

    /// Appends a post whose body is already encoded.
    ///
    /// - Parameter body: The ``Message/marshalledBody`` of a call of ``Post``, `ssa{sv}a{sv}`.
    public func appendPost(number: UInt64, body: [UInt8]) {
        append(.post, number: number, atMost: body.count) { $0.append(bytes: body) }
    }

    /// Appends a notification. Its first part is copied from the encoded post.
    public func append(_ delivery: Delivery, userInfo: WireUserInfo) {
        let size = NotificationSignal.maxBytes(of: delivery, userInfo) + NotificationDetails.maxBytes(of: delivery)
        append(.notification, number: delivery.sequence, atMost: size) { body in
            NotificationSignal.append(delivery, userInfo: userInfo, to: &body)
            NotificationDetails.append(of: delivery, to: &body)
        }
    }

    /// Appends the outcome of the post with this number.
    public func append(_ outcome: ChannelOutcome, number: UInt64) {
        let size =
            4 + MarshalledBytes.maxBytes(of: outcome.errorName) + MarshalledBytes.maxBytes(of: outcome.message)
        append(.outcome, number: number, atMost: size) { body in
            body.append(UInt32(truncatingIfNeeded: outcome.receivers))
            body.append(outcome.errorName)
            body.append(outcome.message)
        }
    }

    /// Appends a report of losses.
    public func append(_ dropped: DroppedSignal) {
        let size =
            8 + MarshalledBytes.maxBytes(ofIntegers: dropped.observers.count)
            + MarshalledBytes.maxBytes(of: dropped.reason)
        append(.dropped, number: 0, atMost: size) { body in
            body.append(dropped.count)
            body.append(dropped.observers.map(\.rawValue))
            body.append(dropped.reason)
        }
    }

    /// Appends a change of the client's suspension.
    public func append(_ change: SuspensionChangedSignal) {
        append(.suspensionChanged, number: 0, atMost: 4 + MarshalledBytes.maxBytes(of: change.cause)) { body in
            body.append(UInt32(change.isSuspended ? 1 : 0))
            body.append(change.cause)
        }
    }

    /// Makes space for `size` bytes behind the unwritten ones.
    private func makeSpace(for size: Int) {
        guard buffer.count - end < size else { return }
        let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
        if buffer.count - byteCount >= size, byteCount <= first {
            // The condition `byteCount <= first` has two effects. Source and destination do not overlap. And at most as
            // many bytes are moved as were written since the last move, so the cost of moves stays proportional.
            buffer.copyMemory(from: rest)
        } else {
            let needed = max(Self.minSize, byteCount + size)
            let other = UnsafeMutableRawBufferPointer.allocate(byteCount: max(needed, 2 * byteCount), alignment: 8)
            if !rest.isEmpty { other.copyMemory(from: rest) }
            buffer.deallocate()
            buffer = other
        }
        (first, end) = (0, end - first)
    }
}
