// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// The encoding of posts, notifications and retained values in records of the recovery log. The extension of
/// ``RecordReader`` below decodes them.
///
/// New values are appended at the end of a record, and a reader takes their absence as the default. Thus a service can
/// read the log of an earlier version.
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
        // Most notifications are posted in this session, for this session, and not retained. For these the rest is
        // omitted.
        if origin != nil || notification.retention != nil || notification.goesToAllSessions {
            append(origin)
            append(notification.retention)
            if notification.goesToAllSessions { append(true) }
        }
    }

    /// Appends a queued post.
    ///
    /// - Parameter coalescing: the keys, name or object, by which it replaced similar queued posts.
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

    /// Appends the retention of a post; 0 means that it is not retained.
    private mutating func append(_ retention: Retention?) {
        append(retention.map { $0.flags + 1 } ?? UInt8(0))
    }

    /// Appends the retention of a value.
    mutating func append(_ retention: Retention) { append(retention.flags) }

    /// Returns the name, object and userInfo as their D-Bus bytes, which the service keeps as it received them.
    private func commonBody(of userInfo: any UserInfo) -> [UInt8] {
        guard let userInfo = userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        return userInfo.commonBody
    }

    /// Appends an expiry, in microseconds since 1970; 0 means never.
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

    /// Appends an origin; an empty text means nil.
    mutating func append(_ origin: OutsideOrigin?) {
        append(origin?.host ?? "")
        append(origin?.user ?? "")
    }

    /// Appends the keys by which a post replaces similar posts.
    mutating func append(_ coalescing: Set<CoalescingKey>) {
        append(coalescing.contains(.name))
        append(coalescing.contains(.object))
    }
}

extension RecordReader {
    /// Reads the beginning of a queued post.
    mutating func readPost() throws(RecordReader.Malformed) -> PendingPost {
        guard let (name, object, userInfo) = WireUserInfo.restored(fromCommonBody: try readBytes())
        else { throw RecordReader.Malformed() }
        return PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: try readBool(),
            style: try readQueuedStyle())
    }

    /// Reads an identity; nil if there is none, or if the record of an earlier version ends here.
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

    /// Reads an origin; nil if the record ends here. Without a host and a user the notification is of this session.
    mutating func readOrigin() throws(RecordReader.Malformed) -> OutsideOrigin? {
        guard !isAtEnd else { return nil }
        let (host, user) = (try readText(), try readText())
        do throws(CenterError) {
            return try OutsideOrigin(host: host.isEmpty ? nil : host, user: user.isEmpty ? nil : user)
        } catch {
            throw RecordReader.Malformed()
        }
    }

    /// Reads an expiry, in microseconds since 1970; nil for never, or if the record of an earlier version ends here.
    mutating func readExpiry() throws(RecordReader.Malformed) -> Int64? {
        guard !isAtEnd else { return nil }
        let expiry = Int64(bitPattern: try readUInt64())
        return expiry == 0 ? nil : expiry
    }

    /// Reads a number of seconds; nil for 0, or if the record of an earlier version ends here.
    mutating func readSeconds() throws(RecordReader.Malformed) -> UInt32? {
        guard !isAtEnd else { return nil }
        let seconds = try readUInt32()
        return seconds == 0 ? nil : seconds
    }

    /// Reads the retention of a post; nil if it is not retained.
    mutating func readRetention() throws(RecordReader.Malformed) -> Retention? {
        let number = try readUInt8()
        return number == 0 ? nil : try Self.retention(number - 1)
    }

    /// Reads the retention of a retained value.
    mutating func readRetentionOfValue() throws(RecordReader.Malformed) -> Retention {
        try Self.retention(readUInt8())
    }

    private static func retention(_ flags: UInt8) throws(RecordReader.Malformed) -> Retention {
        guard let retention = Retention(flags: flags) else { throw RecordReader.Malformed() }
        return retention
    }

    /// Reads the style of a queued post. A post of the style *now* is never queued.
    mutating func readQueuedStyle() throws(RecordReader.Malformed) -> PostingStyle {
        let style: PostingStyle = try readChoice()
        guard style != .now else { throw RecordReader.Malformed() }
        return style
    }

    /// Reads the keys by which a post replaces similar posts.
    mutating func readCoalescing() throws(RecordReader.Malformed) -> Set<CoalescingKey> {
        var keys: Set<CoalescingKey> = []
        if try readBool() { keys.insert(.name) }
        if try readBool() { keys.insert(.object) }
        return keys
    }
}

/// A cache of the last poster's identity that was read from a log. Consecutive records with equal identities share its
/// memory.
struct IdentityCache {
    private var last: Identity?
    private var lastWithOrigin: Identity?

    /// Reads an identity without its origin.
    mutating func identity(_ reader: inout RecordReader) throws(RecordReader.Malformed) -> Identity? {
        guard let read = try reader.readIdentity() else { return nil }
        if let last, last == read { return last }
        last = read
        return read
    }

    /// Reads an origin, and returns the identity with it; the same identity if there is none.
    mutating func withOrigin(
        _ identity: Identity?, _ reader: inout RecordReader
    ) throws(RecordReader.Malformed) -> Identity? {
        guard let origin = try reader.readOrigin() else { return identity }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.originForgotten) { return identity }
        #endif
        let read = (identity ?? Identity()).withOrigin(origin)
        if let lastWithOrigin, lastWithOrigin == read { return lastWithOrigin }
        lastWithOrigin = read
        return read
    }
}
