// SPDX-License-Identifier: Apache-2.0
/// One frame of a channel (`docs/channel.md`): a header of 16 bytes, and a body that is laid out as D-Bus does, aligned as
/// if it began at 0.
///
/// The header is the length of the body (u32), the kind (u32) and a number (u64), in the machine's byte order. Frames
/// follow each other without padding.
public struct ChannelFrame {
    public enum Kind: UInt32, CaseIterable, Sendable {
        /// To the service: `ssa{sv}a{sv}`, as the arguments of ``Post``. Its number is the client's own; 0 wants no outcome.
        case post = 1
        /// To the client: `uss`, as ``ChannelOutcome``. Its number is that of the post.
        case outcome = 2
        /// To the client: `ssa{sv}atstta{sv}`, as ``NotificationSignal``, and details. Its number is the sequence.
        case notification = 3
        /// To the client: `tats`, as ``DroppedSignal``. Its number is 0.
        case dropped = 4
        /// To the client: `bs`, as ``SuspensionChangedSignal``. Its number is 0.
        case suspensionChanged = 5

        /// Who sends it.
        public var sender: Sender { self == .post ? .client : .service }
    }

    public enum Sender: Sendable {
        case client
        case service
    }

    /// What no frame is: nobody can say what comes behind it.
    public enum Fault: Error, Equatable, Sendable {
        /// There is no such kind, or the other side does not send it.
        case kind(UInt32)
        /// The body is longer than any may be.
        case length(UInt32)
        /// The body is not laid out as its kind has it.
        case body(Kind)
    }

    /// Why a body was passed over.
    public enum Cut: Sendable {
        /// It is longer than its reader keeps.
        case length
        /// There is no room for it now (``ChannelFrameReader/passOver()``): only its beginning is here.
        case room
    }

    /// Of a header.
    public static let headerSize = 16
    /// The longest body, whatever the limits: the largest userInfo, name and object, and the most observers.
    public static let maxBytesOfBody = 32 << 20

    public let kind: Kind
    public let number: UInt64
    /// Valid until the reader that gave it is used again; no more than its beginning when ``cut``.
    public let body: UnsafeRawBufferPointer
    /// Why the body is passed over; nil when all of it is here.
    public let cut: Cut?
}

extension ChannelFrame.Fault: CustomStringConvertible {
    public var description: String {
        switch self {
        case .kind(let kind): "a frame of the kind \(kind), which nobody sends there"
        case .length(let length): "a frame of \(length) bytes"
        case .body(let kind):
            "the body of a frame of the kind \(kind.rawValue), which is not laid out as D-Bus lays it out"
        }
    }
}
