// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The decoding of the bodies of frames that the service sends on a channel (``ChannelFrame``). Clients use it.
///
/// The bytes are decoded in place and are untrusted: a body that violates the layout of its kind yields nil. The
/// letters are D-Bus signatures.

extension ArrivedNotification {
    /// Decodes a notification.
    ///
    /// - Parameters:
    ///   - body: The body of a notification frame, `ssa{sv}atstta{sv}`.
    ///   - recent: The fields of the previous notification, which are reused if they are equal, and then replaced.
    public init?(channelBody body: UnsafeRawBufferPointer, like recent: inout Recent) {
        var reader = MarshalledReader(body)
        guard let arrived = try? ArrivedNotification(withDetailsAt: &reader, like: &recent), reader.isAtEnd else {
            return nil
        }
        self = arrived
    }

    /// Decodes a notification without reuse of a previous one.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var recent = Recent()
        self.init(channelBody: body, like: &recent)
    }
}

extension ChannelOutcome {
    /// - Parameter body: The body of an outcome frame, `uss`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let receivers = reader.readUInt32(), let errorName = reader.readString(),
            let message = reader.readString(), reader.isAtEnd
        else { return nil }
        self.init(receivers: Int(receivers), errorName: errorName, message: message)
    }
}

extension DroppedSignal {
    /// - Parameter body: The body of a dropped frame, `tats`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let count = reader.readFixed(UInt64.self), let observers = reader.readFixedArray(of: UInt64.self),
            let reason = reader.readString(), reader.isAtEnd
        else { return nil }
        self.init(count: count, observers: observers.map(ObserverID.init), reason: reason)
    }
}

extension SuspensionChangedSignal {
    /// - Parameter body: The body of a suspension-changed frame, `bs`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let isSuspended = reader.readBool(), let cause = reader.readString(), reader.isAtEnd else { return nil }
        self.init(isSuspended: isSuspended, cause: cause)
    }
}
