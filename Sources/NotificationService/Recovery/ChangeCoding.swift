// SPDX-License-Identifier: Apache-2.0
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
    /// No serial and no observer's number beyond these was given.
    case numbers
    /// What waits is not in the log: for each client the counters have how much it is.
    case queuesUnkept
    case suspensionOwed
    /// The address of the bus.
    case bus
    case options
    /// An observer that monitors, written as any other.
    case monitor
    case retained
    case unretained
    case owed
    case postsWithdrawn
    case delayed
    case delayEnded
    case suspensionOverridden
    case interestFollowed
    case valuesFollowed
}

/// How a list of observers is written.
private enum ListCoding: UInt8 {
    case whole = 0
    /// It is the last long one of this client again.
    case again = 1
    /// It is the other one of the record.
    case same = 2

    /// From here on a list is long: it is worth a place in memory not to write it twice.
    static let long = 4
}

/// Turns changes into records. A notification is written once, before the first record that queues it.
struct ChangeEncoder {
    /// The notifications that the log holds already, as far as it matters: a post is queued for all its clients before
    /// the next post.
    private var lastNotification: UInt64 = 0
    /// The last long list of observers of each client: what waits is for the same ones again and again.
    private var lists: [ClientName: [ObserverID]] = [:]

    /// The record of the numbers beyond which none was given.
    func numbers(serial: UInt64, observer: UInt64, to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.numbers.rawValue)
        records.append(serial)
        records.append(observer)
        records.endRecord()
    }

    /// The record of a log without queues.
    func queuesUnkept(to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.queuesUnkept.rawValue)
        records.endRecord()
    }

    /// The record of where the bus is.
    func bus(address: String, to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.bus.rawValue)
        records.append(address)
        records.endRecord()
    }

    /// - Parameters:
    ///   - slot: where ``RecoveryCounters`` has the counts of a client.
    ///   - records: gets the records, one or two.
    mutating func encode(_ change: Change, slot: (ClientName) -> UInt32, to records: inout RecordGroup) {
        switch change {
        case .queuedDue(_, let notification, _, _), .held(_, let notification, _, _), .retained(let notification, _),
            .delayed(_, let notification, _):
            encode(notification, to: &records)
        default: break
        }
        records.beginRecord()
        defer { records.endRecord() }
        func begin(_ kind: RecordKind, _ client: ClientName) {
            records.append(kind.rawValue)
            records.append(client.rawValue)
        }
        switch change {
        case .client(let name, let counts):
            begin(.client, name)
            records.append(slot(name))
            records.append(counts.sequence)
            records.append(counts.delivered)
            records.append(counts.dropped)
        case .clientGone(let name):
            begin(.clientGone, name)
            lists[name] = nil
        case .observer(let registration):
            begin(registration.options.isMonitor ? .monitor : .observer, registration.client)
            records.append(registration.id.rawValue)
            records.append(registration.name ?? "")
            records.append(registration.object ?? "")
            records.append(registration.options.suspensionBehavior.rawValue)
            records.append(registration.options.automaticSuspension)
            records.append(registration.options.runLoopMode.rawValue)
            records.append(registration.options.minimumInterval)
        case .observersRemoved(let name, let observers):
            begin(.observersRemoved, name)
            records.append(observers.lazy.map(\.rawValue))
        case .suspension(let name, let isSuspended):
            begin(.suspension, name)
            append(isSuspended, to: &records)
        case .suspensionOverridden(let name, let isSuspended):
            begin(.suspensionOverridden, name)
            append(isSuspended, to: &records)
        case .suspendedByActivity(let name, let isSuspended):
            begin(.suspendedByActivity, name)
            records.append(isSuspended)
        case .suspensionOwed(let name, let isOwed):
            begin(.suspensionOwed, name)
            records.append(isOwed)
        case .interestFollowed(let name): begin(.interestFollowed, name)
        case .valuesFollowed(let name): begin(.valuesFollowed, name)
        case .options(let name, let options):
            begin(.options, name)
            records.append(options.batches)
            records.append(UInt32(options.details.rawValue))
        case .queuedDue(let name, let notification, let observers, let lane):
            begin(.queuedDue, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
            records.append(UInt8(lane.rawValue))
        case .held(let name, let notification, let observers, let coalescing):
            begin(.held, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
            if coalescing == observers {
                records.append(ListCoding.same.rawValue)
            } else {
                records.append(ListCoding.whole.rawValue)
                records.append(coalescing.lazy.map(\.rawValue))
            }
        case .delayed(let name, let notification, let observers):
            begin(.delayed, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
        case .delayEnded(let client, let kind, let observers):
            begin(.delayEnded, client)
            records.append(kind.name)
            records.append(kind.object)
            append(observers, of: client, to: &records)
            if let origin = kind.origin { append(origin, to: &records) }
        case .flushed(let name): begin(.flushed, name)
        case .popped(let name, let lane):
            begin(.popped, name)
            records.append(UInt8(lane.rawValue))
        case .lost(let name, let reason):
            begin(.lost, name)
            records.append(reason.rawValue)
        case .unannouncedLoss(let name, let count, let observers, let reason):
            begin(.unannouncedLoss, name)
            records.append(count)
            records.append(observers.lazy.map(\.rawValue))
            records.append(reason.rawValue)
        case .lossAnnounced(let name): begin(.lossAnnounced, name)
        case .retained(let notification, let retention):
            begin(.retained, notification.poster)
            records.append(notification.serial)
            records.append(retention.whileConnected)
        case .unretained(let poster, let kind):
            begin(.unretained, poster)
            records.append(kind.name)
            records.append(kind.object)
            if let origin = kind.origin { append(origin, to: &records) }
        case .owed(let name, let owed):
            begin(.owed, name)
            records.append(owed.observer.rawValue)
            records.append(owed.after)
            records.append(owed.through)
            records.append(owed.isHeld)
        case .postQueued(let poster, let post, let coalescing):
            begin(.postQueued, poster)
            records.append(commonBody(of: post.userInfo))
            records.append(post.deliverImmediately)
            records.append(post.style.rawValue)
            append(coalescing, to: &records)
            append(post.identity, to: &records)
            append(post.expiry, to: &records)
            records.append(post.retention.map { $0.whileConnected ? 2 : 1 } ?? UInt8(0))
            records.append(post.secondsAfterExit ?? 0)
            records.append(post.goesToAllSessions)
            if let origin = post.identity?.origin { append(origin, to: &records) }
        case .postsReplaced(let poster, let name, let object, let coalescing):
            begin(.postsReplaced, poster)
            records.append(name)
            records.append(object)
            append(coalescing, to: &records)
        case .postsWithdrawn(let poster, let name, let object):
            begin(.postsWithdrawn, poster)
            records.append(name)
            records.append(object)
        case .postTaken(let poster, let style):
            begin(.postTaken, poster)
            records.append(style.rawValue)
        }
    }

    private func append(_ word: Bool?, to records: inout RecordGroup) {
        records.append(word.map { $0 ? 2 : 1 } ?? UInt8(0))
    }

    private mutating func append(_ observers: [ObserverID], of client: ClientName, to records: inout RecordGroup) {
        let isLong = observers.count >= ListCoding.long
        guard !isLong || lists[client] != observers else { return records.append(ListCoding.again.rawValue) }
        if isLong { lists[client] = observers }
        records.append(ListCoding.whole.rawValue)
        records.append(observers.lazy.map(\.rawValue))
    }

    private mutating func encode(_ notification: Notification, to records: inout RecordGroup) {
        guard notification.serial != lastNotification else { return }
        lastNotification = notification.serial
        records.beginRecord()
        records.append(RecordKind.notification.rawValue)
        records.append(notification.serial)
        records.append(notification.poster.rawValue)
        records.append(commonBody(of: notification.userInfo))
        records.append(UInt64(bitPattern: notification.time))
        append(notification.identity, to: &records)
        append(notification.expiry, to: &records)
        let origin = notification.identity?.origin
        // Nothing for what most are: of this session, and not kept.
        if origin != nil || notification.isKept {
            append(origin, to: &records)
            records.append(notification.isKept)
        }
        records.endRecord()
    }

    /// Name, object and userInfo.
    private func commonBody(of userInfo: any UserInfo) -> [UInt8] {
        guard let userInfo = userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        return userInfo.commonBody
    }

    private func append(_ expiry: Int64?, to records: inout RecordGroup) {
        records.append(UInt64(bitPattern: expiry ?? 0))
    }

    /// At the end of a record: a text that is empty stands for none.
    private func append(_ identity: Identity?, to records: inout RecordGroup) {
        records.append(identity != nil)
        guard let identity else { return }
        for number in [identity.userID, identity.processID] {
            records.append(number != nil)
            records.append(number ?? 0)
        }
        for text in [identity.process, identity.application, identity.sandbox, identity.unit] {
            records.append(text ?? "")
        }
    }

    /// At the end of a record: a text that is empty stands for none.
    private func append(_ origin: OutsideOrigin?, to records: inout RecordGroup) {
        records.append(origin?.host ?? "")
        records.append(origin?.user ?? "")
    }

    private func append(_ coalescing: Set<CoalescingKey>, to records: inout RecordGroup) {
        records.append(coalescing.contains(.name))
        records.append(coalescing.contains(.object))
    }
}

/// Turns records back into changes.
struct ChangeDecoder {
    /// What a record says.
    enum Content {
        case change(Change)
        case numbers(serial: UInt64, observer: UInt64)
        case queuesUnkept
        case bus(address: String)
        /// What later records speak of.
        case part
    }

    private var notifications: [UInt64: Notification] = [:]
    private var lists: [ClientName: [ObserverID]] = [:]
    private var names = ReadNames()
    private var lastIdentity: Identity?
    private var lastBringing: Identity?

    /// - Parameter counts: what the counters have of a client, in the slot that the record names, which had these counts
    ///   when it was written.
    /// - Throws: ``RecordReader/Malformed``.
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
            // What an earlier version wrote ends here.
            let time = reader.isAtEnd ? 0 : Int64(bitPattern: try reader.readUInt64())
            let identity = try identity(&reader)
            let expiry = try expiry(&reader)
            let bringing = try bringing(identity, &reader)
            notifications[serial] = Notification(
                name: name, object: object, userInfo: userInfo, poster: poster, identity: bringing, time: time,
                expiry: expiry, isKept: reader.isAtEnd ? false : try reader.readBool(), serial: serial)
            return .part
        case .numbers: return .numbers(serial: try reader.readUInt64(), observer: try reader.readUInt64())
        case .queuesUnkept: return .queuesUnkept
        case .bus: return .bus(address: try reader.readText())
        default: return .change(try change(kind, &reader, counts))
        }
    }

    private mutating func change(
        _ kind: RecordKind, _ reader: inout RecordReader, _ counts: (ClientName, UInt32, ClientCounts) -> ClientCounts?
    ) throws(RecordReader.Malformed) -> Change {
        let client = try client(&reader)
        switch kind {
        case .notification, .numbers, .queuesUnkept, .bus: throw RecordReader.Malformed()
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
        case .observer: return .observer(try registration(of: client, isMonitor: false, &reader))
        case .monitor: return .observer(try registration(of: client, isMonitor: true, &reader))
        case .observersRemoved: return .observersRemoved(client, Set(try observers(&reader)))
        case .suspension: return .suspension(client, try word(&reader))
        case .suspensionOverridden: return .suspensionOverridden(client, try word(&reader))
        case .suspendedByActivity: return .suspendedByActivity(client, try reader.readBool())
        case .suspensionOwed: return .suspensionOwed(client, try reader.readBool())
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
                client, try notification(&reader), observers: try list(of: client, &reader), try lane(&reader))
        case .held:
            let notification = try notification(&reader)
            let observers = try list(of: client, &reader)
            let coalescing: [ObserverID]
            switch ListCoding(rawValue: try reader.readUInt8()) {
            case .whole: coalescing = try self.observers(&reader)
            case .same: coalescing = observers
            default: throw RecordReader.Malformed()
            }
            return .held(client, notification, observers: observers, coalescing: coalescing)
        case .delayed:
            return .delayed(client, try notification(&reader), observers: try list(of: client, &reader))
        case .delayEnded:
            let (name, object) = (try reader.readText(), try reader.readText())
            let observers = try list(of: client, &reader)
            return .delayEnded(
                client, NotificationKind(name: name, object: object, origin: try origin(&reader)),
                observers: observers)
        case .flushed: return .flushed(client)
        case .popped: return .popped(client, try lane(&reader))
        case .lost: return .lost(client, try choice(&reader))
        case .unannouncedLoss:
            return .unannouncedLoss(
                client, count: try reader.readUInt64(), observers: Set(try observers(&reader)), try choice(&reader))
        case .lossAnnounced: return .lossAnnounced(client)
        case .postQueued:
            var post = try post(&reader)
            let coalescing = try coalescing(&reader)
            post.identity = try identity(&reader)
            post.expiry = try expiry(&reader)
            post.retention = reader.isAtEnd ? nil : try retention(&reader)
            post.secondsAfterExit = try seconds(&reader)
            post.goesToAllSessions = reader.isAtEnd ? false : try reader.readBool()
            post.identity = try bringing(post.identity, &reader)
            return .postQueued(client, post, coalescing: coalescing)
        case .retained:
            let notification = try notification(&reader)
            return .retained(notification, Retention(whileConnected: try reader.readBool()))
        case .unretained:
            let (name, object) = (try reader.readText(), try reader.readText())
            return .unretained(client, NotificationKind(name: name, object: object, origin: try origin(&reader)))
        case .owed:
            let owed = OwedValues(
                observer: ObserverID(rawValue: try reader.readUInt64()), after: try reader.readUInt64(),
                through: try reader.readUInt64(), isHeld: try reader.readBool())
            return .owed(client, owed)
        case .postsReplaced:
            return .postsReplaced(
                client, name: try reader.readText(), object: try reader.readText(),
                coalescing: try coalescing(&reader))
        case .postsWithdrawn:
            return .postsWithdrawn(client, name: try reader.readText(), object: try reader.readText())
        case .postTaken: return .postTaken(client, try queuedStyle(&reader))
        }
    }

    private func word(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Bool? {
        switch try reader.readUInt8() {
        case 0: return nil
        case 1: return false
        case 2: return true
        default: throw RecordReader.Malformed()
        }
    }

    private mutating func list(
        of client: ClientName, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> [ObserverID] {
        switch ListCoding(rawValue: try reader.readUInt8()) {
        case .again:
            guard let observers = lists[client] else { throw RecordReader.Malformed() }
            return observers
        case .whole:
            let observers = try observers(&reader)
            if observers.count >= ListCoding.long { lists[client] = observers }
            return observers
        default: throw RecordReader.Malformed()
        }
    }

    private mutating func client(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        try names.read(&reader)
    }

    private func post(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> PendingPost {
        guard let (name, object, userInfo) = WireUserInfo.restored(fromCommonBody: try reader.readBytes())
        else { throw RecordReader.Malformed() }
        return PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: try reader.readBool(),
            style: try queuedStyle(&reader))
    }

    /// The end of a record, which an earlier version did not write.
    private mutating func identity(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Identity? {
        guard !reader.isAtEnd, try reader.readBool() else { return nil }
        func number(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> UInt32? {
            let isThere = try reader.readBool()
            let number = try reader.readUInt32()
            return isThere ? number : nil
        }
        func text(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> String? {
            let text = try reader.readText()
            return text.isEmpty ? nil : text
        }
        let read = Identity(
            userID: try number(&reader), processID: try number(&reader), process: try text(&reader),
            application: try text(&reader), sandbox: try text(&reader), unit: try text(&reader))
        // Many that wait are of the same poster.
        if let lastIdentity, lastIdentity == read { return lastIdentity }
        lastIdentity = read
        return read
    }

    /// Nothing stands, or two empty texts, where it is of this session.
    private func origin(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> OutsideOrigin? {
        guard !reader.isAtEnd else { return nil }
        let (host, user) = (try reader.readText(), try reader.readText())
        do throws(CenterError) {
            return try OutsideOrigin(host: host.isEmpty ? nil : host, user: user.isEmpty ? nil : user)
        } catch {
            throw RecordReader.Malformed()
        }
    }

    private mutating func bringing(
        _ identity: Identity?, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Identity? {
        guard let origin = try origin(&reader) else { return identity }
        let read = (identity ?? Identity()).bringing(from: origin)
        if let lastBringing, lastBringing == read { return lastBringing }
        lastBringing = read
        return read
    }

    /// None from an earlier version.
    private func expiry(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Int64? {
        guard !reader.isAtEnd else { return nil }
        let expiry = Int64(bitPattern: try reader.readUInt64())
        return expiry == 0 ? nil : expiry
    }

    /// None from an earlier version.
    private func seconds(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> UInt32? {
        guard !reader.isAtEnd else { return nil }
        let seconds = try reader.readUInt32()
        return seconds == 0 ? nil : seconds
    }

    private func retention(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Retention? {
        switch try reader.readUInt8() {
        case 0: return nil
        case 1: return Retention()
        case 2: return Retention(whileConnected: true)
        default: throw RecordReader.Malformed()
        }
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
        of client: ClientName, isMonitor: Bool, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Registration {
        let id = ObserverID(rawValue: try reader.readUInt64())
        let name = try reader.readText()
        let object = try reader.readText()
        let options = ObserverOptions(
            suspensionBehavior: try choice(&reader), automaticSuspension: try reader.readBool(),
            runLoopMode: try choice(&reader), isMonitor: isMonitor,
            // An earlier version wrote none.
            minimumInterval: reader.isAtEnd ? 0 : try reader.readUInt32())
        return Registration(
            id: id, client: client, name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object,
            options: options)
    }

    private func notification(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Notification {
        guard let notification = notifications[try reader.readUInt64()] else { throw RecordReader.Malformed() }
        return notification
    }

    private func observers(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> [ObserverID] {
        try reader.readNumbers(ObserverID.init(rawValue:))
    }

    private func choice<Choice: RawRepresentable<String>>(
        _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Choice {
        guard let choice = Choice(rawValue: try reader.readText()) else { throw RecordReader.Malformed() }
        return choice
    }
}

/// The names of connections that were read, each made and checked once: a log has thousands of records of one client.
private struct ReadNames {
    /// The bytes of a short name, filled up with zeros.
    private struct Key: Hashable {
        let count: Int
        var words: (UInt64, UInt64) = (0, 0)

        /// - Parameter bytes: at most ``most``.
        init(_ bytes: UnsafeRawBufferPointer) {
            count = bytes.count
            withUnsafeMutableBytes(of: &words) { $0.copyMemory(from: bytes) }
        }

        static let most = 16

        static func == (left: Key, right: Key) -> Bool { left.count == right.count && left.words == right.words }

        func hash(into hasher: inout Hasher) {
            hasher.combine(words.0)
            hasher.combine(words.1)
        }
    }

    private var names: [Key: ClientName] = [:]

    mutating func read(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        var copy = reader
        let bytes = try reader.readBytes()
        guard bytes.count <= Key.most else { return try Self.make(&copy) }
        let key = Key(bytes)
        if let name = names[key] { return name }
        let name = try Self.make(&copy)
        names[key] = name
        return name
    }

    private static func make(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> ClientName {
        guard let name = ClientName(rawValue: try reader.readText()) else { throw RecordReader.Malformed() }
        return name
    }
}
