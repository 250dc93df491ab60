// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// What the service sends on a channel, as clients read it where it lies. Nothing is taken for granted: bytes that are not
/// laid out as the kind has it are nil, whatever they are.

extension ArrivedNotification {
    /// - Parameter body: of a frame of the kind notification, `ssa{sv}atstta{sv}`.
    public init?(channelBody body: UnsafeRawBufferPointer, like recent: inout Recent) {
        var reader = MarshalledReader(body)
        guard let arrived = try? ArrivedNotification(withDetailsAt: &reader, like: &recent), reader.isAtEnd else {
            return nil
        }
        self = arrived
    }

    /// The same for whoever has had none before.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var recent = Recent()
        self.init(channelBody: body, like: &recent)
    }
}

extension ChannelOutcome {
    /// - Parameter body: of a frame of the kind outcome, `uss`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let receivers = reader.readUInt32(), let errorName = reader.readString(),
            let message = reader.readString(), reader.isAtEnd
        else { return nil }
        self.init(receivers: Int(receivers), errorName: errorName, message: message)
    }
}

extension DroppedSignal {
    /// - Parameter body: of a frame of the kind dropped, `tats`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let count = reader.readFixed(UInt64.self), let observers = reader.readFixedArray(of: UInt64.self),
            let reason = reader.readString(), reader.isAtEnd
        else { return nil }
        self.init(count: count, observers: observers.map(ObserverID.init), reason: reason)
    }
}

extension SuspensionChangedSignal {
    /// - Parameter body: of a frame of the kind suspension changed, `bs`.
    public init?(channelBody body: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(body)
        guard let isSuspended = reader.readBool(), let cause = reader.readString(), reader.isAtEnd else { return nil }
        self.init(isSuspended: isSuspended, cause: cause)
    }
}
