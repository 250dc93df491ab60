// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// The decoder of the records of a recovery log, in their order. ``RecoveryStore`` replays its results into the core.
///
/// A record may refer to earlier ones, so the decoder remembers notifications by their serials and the last long list
/// of observers of each client. ``ChangeEncoder`` is its counterpart.
struct ChangeDecoder {
    /// The content of a record.
    enum Content {
        /// A change of the core's state.
        case change(Change)
        /// The reserved numbers.
        case numbers(serial: UInt64, observer: UInt64)
        /// The log has no queues.
        case queuesUnkept
        /// The address of the bus.
        case bus(address: String)
        /// A notification that later records refer to, or a record of a later version that is ignored.
        case part
    }

    /// The notifications that were read, by serial.
    private var notifications: [UInt64: Notification] = [:]
    /// The last long list of observers of each client.
    private var lists: [ClientName: [ObserverID]] = [:]
    private var names = NameCache()
    private var identities = IdentityCache()

    /// Decodes a record.
    ///
    /// - Parameters:
    ///   - record: the bytes of the record.
    ///   - counts: called for the record of a new client. It gets the client, its slot in the counters file
    ///     (``RecoveryCounters``), and the counters at the time of the record. It returns the counters to restore; nil
    ///     if the slot is not valid.
    /// - Throws: ``RecordReader/Malformed`` if the record is corrupt.
    mutating func decode(
        _ record: UnsafeRawBufferPointer, counts: (ClientName, UInt32, ClientCounts) -> ClientCounts?
    ) throws(RecordReader.Malformed) -> Content {
        var reader = RecordReader(record)
        guard let kind = RecordKind(rawValue: try reader.readUInt8()) else { throw RecordReader.Malformed() }
        switch kind {
        case .notification:
            let serial = try reader.readUInt64()
            let poster = try client(&reader)
            guard let (name, object, userInfo) = WireUserInfo.restored(fromCommonBody: try reader.readBytes())
            else { throw RecordReader.Malformed() }
            // Records of an earlier version of the service end here.
            let time = reader.isAtEnd ? 0 : Int64(bitPattern: try reader.readUInt64())
            let identity = try identities.identity(&reader)
            let expiry = try reader.readExpiry()
            let withOrigin = try identities.withOrigin(identity, &reader)
            notifications[serial] = Notification(
                name: name, object: object, userInfo: userInfo, poster: poster, identity: withOrigin, time: time,
                expiry: expiry, retention: reader.isAtEnd ? nil : try reader.readRetention(),
                goesToAllSessions: reader.isAtEnd ? false : try reader.readBool(), serial: serial)
            return .part
        case .numbers: return .numbers(serial: try reader.readUInt64(), observer: try reader.readUInt64())
        case .queuesUnkept: return .queuesUnkept
        case .bus: return .bus(address: try reader.readText())
        case .excess:
            let key = Limits.Key(rawValue: try reader.readText())
            let (amount, limit) = (Int(exactly: try reader.readUInt64()), Int(exactly: try reader.readUInt64()))
            guard let amount, let limit else { throw RecordReader.Malformed() }
            // A later version of the service may have further limits.
            guard let key else { return .part }
            return .change(.excess(key, Excess(amount: amount, limit: limit)))
        default: return .change(try change(kind, &reader, counts))
        }
    }

    /// Decodes the rest of a record of a change, which begins with the name of its client.
    private mutating func change(
        _ kind: RecordKind, _ reader: inout RecordReader, _ counts: (ClientName, UInt32, ClientCounts) -> ClientCounts?
    ) throws(RecordReader.Malformed) -> Change {
        let client = try client(&reader)
        switch kind {
        // These are no changes of a client, and ``decode(_:counts:)`` has handled them.
        case .notification, .numbers, .queuesUnkept, .bus, .excess: throw RecordReader.Malformed()
        case .client:
            let slot = try reader.readUInt32()
            let written = ClientCounts(
                sequence: try reader.readUInt64(), delivered: try reader.readUInt64(),
                dropped: try reader.readUInt64())
            guard let counts = counts(client, slot, written) else { throw RecordReader.Malformed() }
            return .client(client, counts)
        case .clientGone:
            lists[client] = nil
            return .clientGone(client)
        case .observer: return .observer(try reader.readRegistration(of: client, isMonitor: false))
        case .monitor: return .observer(try reader.readRegistration(of: client, isMonitor: true))
        case .observersRemoved: return .observersRemoved(client, Set(try reader.readObservers()))
        case .observersRevoked: return .observersRevoked(client, Set(try reader.readObservers()))
        case .revocationsKnown: return .revocationsKnown(client)
        case .suspension: return .suspension(client, try reader.readOptionalBool())
        case .suspensionOverridden: return .suspensionOverridden(client, try reader.readOptionalBool())
        case .suspendedByActivity: return .suspendedByActivity(client, try reader.readBool())
        case .suspensionNoticePending: return .suspensionNoticePending(client, try reader.readBool())
        case .interestFollowed: return .interestFollowed(client)
        case .valuesFollowed: return .valuesFollowed(client)
        case .options:
            var options = ClientOptions()
            options.batches = try reader.readBool()
            if !reader.isAtEnd {
                options.details = Details(rawValue: UInt16(truncatingIfNeeded: try reader.readUInt32()))
            }
            return .options(client, options)
        case .queuedDue:
            return .queuedDue(
                client, try notification(&reader), observers: try list(of: client, &reader), try reader.readLane())
        case .held:
            let notification = try notification(&reader)
            let observers = try list(of: client, &reader)
            let coalescing: [ObserverID]
            switch ListCoding(rawValue: try reader.readUInt8()) {
            case .whole: coalescing = try reader.readObservers()
            case .same: coalescing = observers
            default: throw RecordReader.Malformed()
            }
            return .held(client, notification, observers: observers, coalescing: coalescing)
        case .throttled:
            return .throttled(client, try notification(&reader), observers: try list(of: client, &reader))
        case .throttleEnded:
            let (name, object) = (try reader.readText(), try reader.readText())
            let observers = try list(of: client, &reader)
            return .throttleEnded(
                client, NotificationKey(name: name, object: object, origin: try reader.readOrigin()),
                observers: observers)
        case .flushed: return .flushed(client)
        case .popped: return .popped(client, try reader.readLane())
        case .lost: return .lost(client, try reader.readChoice())
        case .unreportedLoss:
            return .unreportedLoss(
                client, count: try reader.readUInt64(), observers: ObserverSet(try reader.readObservers()),
                try reader.readChoice())
        case .lossAnnounced: return .lossAnnounced(client)
        case .postQueued:
            var post = try reader.readPost()
            let coalescing = try reader.readCoalescing()
            post.identity = try identities.identity(&reader)
            post.expiry = try reader.readExpiry()
            post.retention = reader.isAtEnd ? nil : try reader.readRetention()
            post.secondsAfterExit = try reader.readSeconds()
            post.goesToAllSessions = reader.isAtEnd ? false : try reader.readBool()
            post.identity = try identities.withOrigin(post.identity, &reader)
            return .postQueued(client, post, coalescing: coalescing)
        case .retained:
            let notification = try notification(&reader)
            return .retained(notification, try reader.readRetentionOfValue())
        case .unretained:
            let (name, object) = (try reader.readText(), try reader.readText())
            return .unretained(client, NotificationKey(name: name, object: object, origin: try reader.readOrigin()))
        case .replays:
            let replays = RetainedReplay(
                observer: ObserverID(rawValue: try reader.readUInt64()), after: try reader.readUInt64(),
                through: try reader.readUInt64(), isHeld: try reader.readBool())
            return .replays(client, replays)
        case .postsReplaced:
            return .postsReplaced(
                client, name: try reader.readText(), object: try reader.readText(),
                coalescing: try reader.readCoalescing())
        case .postsWithdrawn:
            return .postsWithdrawn(client, name: try reader.readText(), object: try reader.readText())
        case .postTaken: return .postTaken(client, try reader.readQueuedStyle())
        }
    }

    /// Reads a list of observers of a client (``ListCoding``).
    private mutating func list(
        of client: ClientName, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> [ObserverID] {
        switch ListCoding(rawValue: try reader.readUInt8()) {
        case .again:
            guard let observers = lists[client] else { throw RecordReader.Malformed() }
            return observers
        case .whole:
            let observers = try reader.readObservers()
            if observers.count >= ListCoding.long { lists[client] = observers }
            return observers
        default: throw RecordReader.Malformed()
        }
    }

    private mutating func client(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        try names.read(&reader)
    }

    /// Reads the serial of a notification, and returns that of an earlier record.
    private func notification(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Notification {
        guard let notification = notifications[try reader.readUInt64()] else { throw RecordReader.Malformed() }
        return notification
    }
}
