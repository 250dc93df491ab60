import NotificationCore
import NotificationWire

/// The kinds of record in the log, by their first byte.
private enum RecordKind: UInt8 {
    /// A notification that records behind it mention by its serial.
    case notification = 1
    case client
    case clientGone
    case observer
    case observersRemoved
    case suspension
    case queuedDue
    case held
    case flushed
    case popped
    case lost
    case unannouncedLoss
    case lossAnnounced
    case postQueued
    case postsReplaced
    case postTaken
    case suspendedByActivity
}

/// Turns changes into records. A notification is written once, before the first record that queues it.
struct ChangeEncoder {
    /// The notifications that the log holds already, as far as it matters: a post is queued for all its clients before
    /// the next post.
    private var lastNotification: UInt64 = 0

    /// - Parameters:
    ///   - slot: where ``RecoveryCounters`` has the counts of a client.
    ///   - body: gets each record.
    mutating func encode(_ change: Change, slot: (ClientName) -> UInt32, _ body: ([UInt8]) -> Void) {
        var record = RecordWriter()
        func begin(_ kind: RecordKind, _ client: ClientName) {
            record.append(kind.rawValue)
            record.append(client.rawValue)
        }
        switch change {
        case .client(let name, _):
            begin(.client, name)
            record.append(slot(name))
        case .clientGone(let name): begin(.clientGone, name)
        case .observer(let registration):
            begin(.observer, registration.client)
            record.append(registration.id.rawValue)
            record.append(registration.name ?? "")
            record.append(registration.object ?? "")
            record.append(registration.options.suspensionBehavior.rawValue)
            record.append(registration.options.automaticSuspension)
            record.append(registration.options.runLoopMode.rawValue)
        case .observersRemoved(let name, let observers):
            begin(.observersRemoved, name)
            record.append(observers.map(\.rawValue))
        case .suspension(let name, let isSuspended):
            begin(.suspension, name)
            record.append(isSuspended.map { $0 ? 2 : 1 } ?? UInt8(0))
        case .suspendedByActivity(let name, let isSuspended):
            begin(.suspendedByActivity, name)
            record.append(isSuspended)
        case .queuedDue(let name, let notification, let observers, let lane):
            encode(notification, body)
            begin(.queuedDue, name)
            record.append(notification.serial)
            record.append(observers.map(\.rawValue))
            record.append(UInt8(lane.rawValue))
        case .held(let name, let notification, let observers, let coalescing):
            encode(notification, body)
            begin(.held, name)
            record.append(notification.serial)
            record.append(observers.map(\.rawValue))
            record.append(coalescing.map(\.rawValue))
        case .flushed(let name): begin(.flushed, name)
        case .popped(let name, let lane):
            begin(.popped, name)
            record.append(UInt8(lane.rawValue))
        case .lost(let name, let reason):
            begin(.lost, name)
            record.append(reason.rawValue)
        case .unannouncedLoss(let name, let count, let observers, let reason):
            begin(.unannouncedLoss, name)
            record.append(count)
            record.append(observers.map(\.rawValue))
            record.append(reason.rawValue)
        case .lossAnnounced(let name): begin(.lossAnnounced, name)
        case .postQueued(let poster, let post, let coalescing):
            begin(.postQueued, poster)
            record.append(commonBody(of: post.userInfo))
            record.append(post.deliverImmediately)
            record.append(post.style.rawValue)
            append(coalescing, to: &record)
        case .postsReplaced(let poster, let name, let object, let coalescing):
            begin(.postsReplaced, poster)
            record.append(name)
            record.append(object)
            append(coalescing, to: &record)
        case .postTaken(let poster, let style):
            begin(.postTaken, poster)
            record.append(style.rawValue)
        }
        body(record.bytes)
    }

    private mutating func encode(_ notification: Notification, _ body: ([UInt8]) -> Void) {
        guard notification.serial != lastNotification else { return }
        lastNotification = notification.serial
        var record = RecordWriter()
        record.append(RecordKind.notification.rawValue)
        record.append(notification.serial)
        record.append(notification.poster.rawValue)
        record.append(commonBody(of: notification.userInfo))
        body(record.bytes)
    }

    /// Name, object and userInfo.
    private func commonBody(of userInfo: any UserInfo) -> [UInt8] {
        guard let userInfo = userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        return userInfo.commonBody
    }

    private func append(_ coalescing: Set<CoalescingKey>, to record: inout RecordWriter) {
        record.append(coalescing.contains(.name))
        record.append(coalescing.contains(.object))
    }
}

/// Turns records back into changes.
struct ChangeDecoder {
    private var notifications: [UInt64: Notification] = [:]

    /// - Parameter counts: the counts in a slot; nil when there is no such slot.
    /// - Returns: nil for a record that is no change by itself.
    /// - Throws: ``RecordReader/Malformed``.
    mutating func decode(
        _ record: ArraySlice<UInt8>, counts: (ClientName, UInt32) -> ClientCounts?
    ) throws(RecordReader.Malformed) -> Change? {
        var reader = RecordReader(record)
        guard let kind = RecordKind(rawValue: try reader.readUInt8()) else { throw RecordReader.Malformed() }
        guard kind != .notification else {
            let serial = try reader.readUInt64()
            let poster = try client(&reader)
            guard
                let (name, object, userInfo) = WireUserInfo.restored(
                    fromCommonBody: Array(try reader.readBytes()))
            else { throw RecordReader.Malformed() }
            notifications[serial] = Notification(
                name: name, object: object, userInfo: userInfo, poster: poster, serial: serial)
            return nil
        }
        let client = try client(&reader)
        switch kind {
        case .notification: return nil
        case .client:
            guard let counts = counts(client, try reader.readUInt32()) else { throw RecordReader.Malformed() }
            return .client(client, counts)
        case .clientGone: return .clientGone(client)
        case .observer: return .observer(try registration(of: client, &reader))
        case .observersRemoved: return .observersRemoved(client, Set(try observers(&reader)))
        case .suspension:
            switch try reader.readUInt8() {
            case 0: return .suspension(client, nil)
            case 1: return .suspension(client, false)
            case 2: return .suspension(client, true)
            default: throw RecordReader.Malformed()
            }
        case .suspendedByActivity: return .suspendedByActivity(client, try reader.readBool())
        case .queuedDue:
            return .queuedDue(
                client, try notification(&reader), observers: try observers(&reader), try lane(&reader))
        case .held:
            return .held(
                client, try notification(&reader), observers: try observers(&reader),
                coalescing: try observers(&reader))
        case .flushed: return .flushed(client)
        case .popped: return .popped(client, try lane(&reader))
        case .lost: return .lost(client, try choice(&reader))
        case .unannouncedLoss:
            return .unannouncedLoss(
                client, count: try reader.readUInt64(), observers: Set(try observers(&reader)), try choice(&reader))
        case .lossAnnounced: return .lossAnnounced(client)
        case .postQueued: return .postQueued(client, try post(&reader), coalescing: try coalescing(&reader))
        case .postsReplaced:
            return .postsReplaced(
                client, name: try reader.readText(), object: try reader.readText(),
                coalescing: try coalescing(&reader))
        case .postTaken: return .postTaken(client, try queuedStyle(&reader))
        }
    }

    private func client(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        guard let name = ClientName(rawValue: try reader.readText()) else { throw RecordReader.Malformed() }
        return name
    }

    private func post(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> PendingPost {
        guard
            let (name, object, userInfo) = WireUserInfo.restored(fromCommonBody: Array(try reader.readBytes()))
        else { throw RecordReader.Malformed() }
        return PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: try reader.readBool(),
            style: try queuedStyle(&reader))
    }

    private func queuedStyle(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> PostingStyle {
        let style: PostingStyle = try choice(&reader)
        guard style != .now else { throw RecordReader.Malformed() }
        return style
    }

    private func coalescing(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Set<CoalescingKey> {
        var keys: Set<CoalescingKey> = []
        if try reader.readBool() { keys.insert(.name) }
        if try reader.readBool() { keys.insert(.object) }
        return keys
    }

    private func lane(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> DeliveryLane {
        guard let lane = DeliveryLane(rawValue: Int(try reader.readUInt8())) else { throw RecordReader.Malformed() }
        return lane
    }

    private func registration(
        of client: ClientName, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Registration {
        let id = ObserverID(rawValue: try reader.readUInt64())
        let name = try reader.readText()
        let object = try reader.readText()
        let options = ObserverOptions(
            suspensionBehavior: try choice(&reader), automaticSuspension: try reader.readBool(),
            runLoopMode: try choice(&reader))
        return Registration(
            id: id, client: client, name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object,
            options: options)
    }

    private func notification(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Notification {
        guard let notification = notifications[try reader.readUInt64()] else { throw RecordReader.Malformed() }
        return notification
    }

    private func observers(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> [ObserverID] {
        try reader.readNumbers().map(ObserverID.init(rawValue:))
    }

    private func choice<Choice: RawRepresentable<String>>(
        _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Choice {
        guard let choice = Choice(rawValue: try reader.readText()) else { throw RecordReader.Malformed() }
        return choice
    }
}
