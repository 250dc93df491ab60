// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// The coding of posts, notifications and retained values in records.
extension RecordGroup {
    /// Appends a notification without its receivers.
    mutating func append(_ notification: Notification) {
        append(notification.serial)
        append(notification.poster.rawValue)
        append(commonBody(of: notification.userInfo))
        append(UInt64(bitPattern: notification.time))
        append(notification.identity)
        append(notification.expiry)
        let origin = notification.identity?.origin
        // Omitted for most notifications, which are of this session, for this session only, and not retained.
        if origin != nil || notification.retention != nil || notification.goesToAllSessions {
            append(origin)
            append(notification.retention)
            if notification.goesToAllSessions { append(true) }
        }
    }

    /// Appends a queued post with the keys by which it has replaced similar posts.
    mutating func append(_ post: PendingPost, coalescing: Set<CoalescingKey>) {
        append(commonBody(of: post.userInfo))
        append(post.deliverImmediately)
        append(post.style.rawValue)
        append(coalescing)
        append(post.identity)
        append(post.expiry)
        append(post.retention)
        append(post.secondsAfterExit ?? 0)
        append(post.goesToAllSessions)
        if let origin = post.identity?.origin { append(origin) }
    }

    private mutating func append(_ retention: Retention?) {
        append(retention.map { $0.flags + 1 } ?? UInt8(0))
    }

    /// Appends the retention of a value.
    mutating func append(_ retention: Retention) { append(retention.flags) }

    /// Returns the coded name, object and userInfo.
    private func commonBody(of userInfo: any UserInfo) -> [UInt8] {
        guard let userInfo = userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        return userInfo.commonBody
    }

    mutating func append(_ expiry: Int64?) {
        append(UInt64(bitPattern: expiry ?? 0))
    }

    /// Appends an identity; an empty text means nil.
    mutating func append(_ identity: Identity?) {
        append(identity != nil)
        guard let identity else { return }
        for number in [identity.userID, identity.processID] {
            append(number != nil)
            append(number ?? 0)
        }
        for text in [identity.process, identity.application, identity.sandbox, identity.unit] {
            append(text ?? "")
        }
    }

    /// Appends an origin; an empty text means nil. It is the end of a record.
    mutating func append(_ origin: OutsideOrigin?) {
        append(origin?.host ?? "")
        append(origin?.user ?? "")
    }

    mutating func append(_ coalescing: Set<CoalescingKey>) {
        append(coalescing.contains(.name))
        append(coalescing.contains(.object))
    }
}

extension RecordReader {
    mutating func readPost() throws(RecordReader.Malformed) -> PendingPost {
        guard let (name, object, userInfo) = WireUserInfo.restored(fromCommonBody: try readBytes())
        else { throw RecordReader.Malformed() }
        return PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: try readBool(),
            style: try readQueuedStyle())
    }

    /// Reads an identity; nil in a record of an earlier version.
    mutating func readIdentity() throws(RecordReader.Malformed) -> Identity? {
        guard !isAtEnd, try readBool() else { return nil }
        func number() throws(RecordReader.Malformed) -> UInt32? {
            let isThere = try readBool()
            let number = try readUInt32()
            return isThere ? number : nil
        }
        func text() throws(RecordReader.Malformed) -> String? {
            let text = try readText()
            return text.isEmpty ? nil : text
        }
        return Identity(
            userID: try number(), processID: try number(), process: try text(),
            application: try text(), sandbox: try text(), unit: try text())
    }

    /// Reads an origin; nil if the record ends here or both texts are empty, which means this session.
    mutating func readOrigin() throws(RecordReader.Malformed) -> OutsideOrigin? {
        guard !isAtEnd else { return nil }
        let (host, user) = (try readText(), try readText())
        do throws(CenterError) {
            return try OutsideOrigin(host: host.isEmpty ? nil : host, user: user.isEmpty ? nil : user)
        } catch {
            throw RecordReader.Malformed()
        }
    }

    /// Reads an expiry; nil in a record of an earlier version.
    mutating func readExpiry() throws(RecordReader.Malformed) -> Int64? {
        guard !isAtEnd else { return nil }
        let expiry = Int64(bitPattern: try readUInt64())
        return expiry == 0 ? nil : expiry
    }

    /// Reads a number of seconds; nil in a record of an earlier version.
    mutating func readSeconds() throws(RecordReader.Malformed) -> UInt32? {
        guard !isAtEnd else { return nil }
        let seconds = try readUInt32()
        return seconds == 0 ? nil : seconds
    }

    mutating func readRetention() throws(RecordReader.Malformed) -> Retention? {
        let number = try readUInt8()
        return number == 0 ? nil : try Self.retention(number - 1)
    }

    mutating func readRetentionOfValue() throws(RecordReader.Malformed) -> Retention {
        try Self.retention(readUInt8())
    }

    private static func retention(_ flags: UInt8) throws(RecordReader.Malformed) -> Retention {
        guard let retention = Retention(flags: flags) else { throw RecordReader.Malformed() }
        return retention
    }

    mutating func readQueuedStyle() throws(RecordReader.Malformed) -> PostingStyle {
        let style: PostingStyle = try readChoice()
        guard style != .now else { throw RecordReader.Malformed() }
        return style
    }

    mutating func readCoalescing() throws(RecordReader.Malformed) -> Set<CoalescingKey> {
        var keys: Set<CoalescingKey> = []
        if try readBool() { keys.insert(.name) }
        if try readBool() { keys.insert(.object) }
        return keys
    }
}

/// The identities of posters that were read. Consecutive equal identities share one instance.
struct ReadIdentities {
    private var last: Identity?
    private var lastWithOrigin: Identity?

    mutating func identity(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Identity? {
        guard let read = try reader.readIdentity() else { return nil }
        if let last, last == read { return last }
        last = read
        return read
    }

    /// Reads the origin at the end of a record, and returns the identity with it.
    mutating func withOrigin(
        _ identity: Identity?, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Identity? {
        guard let origin = try reader.readOrigin() else { return identity }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.placeForgotten) { return identity }
        #endif
        let read = (identity ?? Identity()).withOrigin(origin)
        if let lastWithOrigin, lastWithOrigin == read { return lastWithOrigin }
        lastWithOrigin = read
        return read
    }
}
