// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// A notification as the client library receives it, decoded in place and without libdbus (F3). ``NotificationSignal``
/// is the counterpart for encoding and tests.
///
/// The userInfo is checked on arrival and decoded on demand. A malformed notification is therefore detected in its
/// place in the stream, and a later access to userInfo, perhaps on another thread, can't fail.
public struct ArrivedNotification: Sendable {
    public let name: String
    /// The object of the notification; empty for none.
    public let object: String
    public let userInfo: UserInfoBytes
    /// The matching observers of the client.
    public let observers: [ObserverID]
    /// The poster, as the bus verified it.
    public let poster: UniqueName
    /// The position among all notifications that the service accepted (D4).
    public let serial: UInt64
    /// The sequence number in the stream of this client.
    public let sequence: UInt64
    /// The details that the client requested, under the contract's keys (P1); nil if there are none.
    public private(set) var details: UserInfoBytes?

    /// A cache of the fields of the previous notification. Equal fields of the next notification reuse them, which
    /// saves allocations of memory.
    public struct Recent: Sendable {
        fileprivate var name = ""
        fileprivate var object = ""
        fileprivate var observers: [ObserverID] = []
        fileprivate var poster: UniqueName?

        public init() {}
    }

    /// Decodes the `ssa{sv}atstt` at the position of `reader`, which is aligned to 8 bytes.
    ///
    /// - Parameter recent: The previous notification; afterwards this one.
    /// - Throws: InvalidArgs, or the error of userInfo.
    public init(at reader: inout MarshalledReader, like recent: inout Recent) throws(BusError) {
        guard let name = reader.readString(like: recent.name), let object = reader.readString(like: recent.object)
        else { throw Self.malformed }
        let userInfo: UserInfoBytes
        do throws(CenterError) {
            userInfo = try UserInfoBytes(at: &reader)
        } catch {
            throw BusError(error)
        }
        guard let observers = Self.readObservers(&reader, like: recent.observers),
            let poster = Self.readPoster(&reader, like: recent.poster),
            let serial = reader.readFixed(UInt64.self), let sequence = reader.readFixed(UInt64.self)
        else { throw Self.malformed }
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.observers = observers
        self.poster = poster
        self.serial = serial
        self.sequence = sequence
        (recent.name, recent.object, recent.observers, recent.poster) = (name, object, observers, poster)
    }

    private static func readObservers(_ reader: inout MarshalledReader, like recent: [ObserverID]) -> [ObserverID]? {
        let size = MemoryLayout<UInt64>.size
        guard let place = reader.readArray(alignedTo: size), place.count % size == 0 else { return nil }
        reader.move(to: place.upperBound)
        let bytes = reader.bytes
        func number(_ index: Int) -> UInt64 {
            bytes.loadUnaligned(fromByteOffset: place.lowerBound + size * index, as: UInt64.self)
        }
        let count = place.count / size
        if count == recent.count, recent.indices.allSatisfy({ recent[$0].rawValue == number($0) }) { return recent }
        return (0..<count).map { ObserverID(rawValue: number($0)) }
    }

    private static func readPoster(_ reader: inout MarshalledReader, like recent: UniqueName?) -> UniqueName? {
        guard let text = reader.readString(like: recent?.rawValue ?? "") else { return nil }
        if let recent, recent.rawValue == text { return recent }
        return UniqueName(rawValue: text)
    }

    /// Decodes a notification with details, the `ssa{sv}atstta{sv}` at the position of `reader`. Batches and the frames
    /// of a channel have this form.
    ///
    /// - Throws: InvalidArgs, or the error of userInfo.
    public init(withDetailsAt reader: inout MarshalledReader, like recent: inout Recent) throws(BusError) {
        guard reader.align(to: 8) else { throw Self.malformed }
        try self.init(at: &reader, like: &recent)
        let start = reader
        guard let place = reader.readArray(alignedTo: 8) else { throw Self.malformed }
        reader.move(to: place.upperBound)
        guard !place.isEmpty else { return }
        reader = start
        do throws(CenterError) {
            details = try UserInfoBytes(at: &reader)
        } catch {
            throw BusError(error)
        }
    }

    /// Decodes the notifications of a message ``NotificationSignal`` or ``NotificationsSignal``, in their order. The
    /// caller has to verify that the service sent the message (E6).
    ///
    /// - Returns: nil if `message` is another message.
    /// - Throws: InvalidArgs, or the error of userInfo; then no notification is returned.
    public static func all(
        in message: Message, like recent: inout Recent
    ) throws(BusError) -> [ArrivedNotification]? {
        let isSingle = message.isSignal(Wire.interface, NotificationSignal.member)
        guard isSingle || message.isSignal(Wire.interface, NotificationsSignal.member) else { return nil }
        guard message.hasSignature(isSingle ? singleSignature : batchSignature) else {
            throw .invalidArgs("'\(message.signature)' is not the signature of a notification")
        }
        var all: [ArrivedNotification] = []
        try message.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            if isSingle {
                all.append(try ArrivedNotification(at: &reader, like: &recent))
            } else {
                guard let place = reader.readArray(alignedTo: 8), place.upperBound == body.count else {
                    throw malformed
                }
                while reader.offset < place.upperBound {
                    all.append(try ArrivedNotification(withDetailsAt: &reader, like: &recent))
                }
            }
            guard reader.isAtEnd else { throw malformed }
        }
        return all
    }

    /// The same without a previous notification.
    public static func all(in message: Message) throws(BusError) -> [ArrivedNotification]? {
        var recent = Recent()
        return try all(in: message, like: &recent)
    }

    private static let singleSignature: Signature = "ssa{sv}atstt"
    private static let batchSignature: Signature = "a(ssa{sv}atstta{sv})"

    private static var malformed: BusError {
        .invalidArgs("the notification is malformed D-Bus data")
    }
}
