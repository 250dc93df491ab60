// SPDX-License-Identifier: Apache-2.0
/// One frame of a channel (`docs/channel.md`): a header of 16 bytes, and a body in the D-Bus layout, aligned as if it
/// began at offset 0.
///
/// The header consists of the length of the body (u32), the kind (u32) and a number (u64), in the machine's byte order.
/// Frames follow each other without padding.
public struct ChannelFrame {
    public enum Kind: UInt32, CaseIterable, Sendable {
        /// To the service: `ssa{sv}a{sv}`, the arguments of ``Post``. The client chooses the number; 0 requests no
        /// outcome.
        case post = 1
        /// To the client: `uss`, a ``ChannelOutcome``. The number is that of the post.
        case outcome = 2
        /// To the client: `ssa{sv}atstta{sv}`, a ``NotificationSignal`` and its details. The number is the sequence.
        case notification = 3
        /// To the client: `tats`, a ``DroppedSignal``. The number is 0.
        case dropped = 4
        /// To the client: `bs`, a ``SuspensionChangedSignal``. The number is 0.
        case suspensionChanged = 5

        /// The side that sends frames of this kind.
        public var sender: Sender { self == .post ? .client : .service }
    }

    public enum Sender: Sendable {
        case client
        case service
    }

    /// A protocol violation, behind which no frame boundary is known.
    public enum Fault: Error, Equatable, Sendable {
        /// The kind is unknown, or the other side does not send it.
        case kind(UInt32)
        /// The body exceeds ``maxBytesOfBody``.
        case length(UInt32)
        /// The body violates the layout of its kind.
        case body(Kind)
    }

    /// The reason why a body is skipped.
    public enum Cut: Sendable {
        /// The body is longer than its reader keeps.
        case length
        /// A quota has no space for the body (``ChannelFrameReader/passOver()``); only its beginning is available.
        case room
    }

    /// The size of a header, in bytes.
    public static let headerSize = 16
    /// The maximum size of a body, in bytes, independent of the limits: the largest userInfo, name and object, and the
    /// most observers.
    public static let maxBytesOfBody = 32 << 20

    public let kind: Kind
    public let number: UInt64
    /// The body, or at most its beginning if ``cut`` is not nil. Valid until the next use of the reader that returned
    /// it.
    public let body: UnsafeRawBufferPointer
    /// The reason why the body is skipped; nil for a complete body.
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
