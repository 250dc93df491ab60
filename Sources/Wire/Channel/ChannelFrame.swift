// SPDX-License-Identifier: Apache-2.0
/// A received frame, the unit of messages on a channel between a client and the service (`docs/channel.md`). A frame
/// has a header of 16 bytes, and a body in the D-Bus layout, aligned as if it began at offset 0. ``ChannelFrameReader``
/// returns frames; ``ChannelFrameWriter`` encodes them.
///
/// The header consists of the length of the body (u32), the kind (u32) and a number (u64), in the machine's byte order.
/// Frames follow each other without padding.
public struct ChannelFrame {
    /// The kind of a frame, which decides the layout of its body, given as a D-Bus signature.
    public enum Kind: UInt32, CaseIterable, Sendable {
        /// To the service: `ssa{sv}a{sv}`, the arguments of ``Post``. The client chooses the number; 0 requests no
        /// outcome.
        case post = 1
        /// To the client: `uss`, a ``ChannelOutcome``. The number is that of the post.
        case outcome = 2
        /// To the client: `ssa{sv}atstta{sv}`, a ``NotificationSignal`` and its details. The number is the
        /// sequence number.
        case notification = 3
        /// To the client: `tats`, a ``DroppedSignal``. The number is 0.
        case dropped = 4
        /// To the client: `bs`, a ``SuspensionChangedSignal``. The number is 0.
        case suspensionChanged = 5

        /// The side that sends frames of this kind.
        public var sender: Sender { self == .post ? .client : .service }
    }

    /// A side of a channel.
    public enum Sender: Sendable {
        case client
        case service
    }

    /// A protocol violation. The boundaries of later frames are unknown, so the channel must be closed.
    public enum Fault: Error, Equatable, Sendable {
        /// The kind is unknown, or the other side does not send it.
        case kind(UInt32)
        /// The body exceeds ``maxBytesOfBody``.
        case length(UInt32)
        /// The body violates the layout of its kind.
        case body(Kind)
    }

    /// The reason why the reader discarded a body without storing it.
    public enum Cut: Sendable {
        /// The body is longer than ``ChannelFrameReader/maxKept``.
        case length
        /// The owner of the reader has no memory quota for the body (``ChannelFrameReader/passOver()``). Only the
        /// beginning of the body is available.
        case room
    }

    /// The size of a header, in bytes.
    public static let headerSize = 16
    /// The maximum size of a body, in bytes. It has space for the largest values that any configuration of limits
    /// allows.
    public static let maxBytesOfBody = 32 << 20

    public let kind: Kind
    /// The number in the header; its meaning depends on the kind.
    public let number: UInt64
    /// The body; only its beginning, or nothing, if ``cut`` is not nil. It is valid until the next use of the reader.
    public let body: UnsafeRawBufferPointer
    /// The reason why the body was discarded; nil for a complete body.
    public let cut: Cut?
}

extension ChannelFrame.Fault: CustomStringConvertible {
    public var description: String {
        switch self {
        case .kind(let kind): "a frame of the unexpected kind \(kind)"
        case .length(let length): "a frame with a body of \(length) bytes"
        case .body(let kind):
            "a frame of the kind \(kind.rawValue) with a malformed body"
        }
    }
}
