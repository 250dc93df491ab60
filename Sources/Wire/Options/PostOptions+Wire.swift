// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding and decoding of the options of the method ``Post``, through libdbus.
extension PostOptions {
    /// Reads the options, the next `a{sv}` of the arguments.
    ///
    /// - Throws: ``CenterError/invalidOption(_:reason:)`` for an unknown key, a wrong type or an unknown value.
    public init(from reader: inout MessageReader) throws(CenterError) {
        self.init()
        var (isRetained, isWhileConnected) = (false, false)
        var (host, user): (String?, String?) = (nil, nil)
        try readOptions(&reader) { option throws(CenterError) in
            switch option.key {
            case "deliver-immediately": deliverImmediately = try option.boolean()
            case "posting-style": postingStyle = try option.choice()
            case "coalesce-on": coalescing = Set(try option.choices())
            case "retain": isRetained = try option.boolean()
            case "while-connected": isWhileConnected = try option.boolean()
            case "expires-after": expiresAfter = try option.number()
            case "host": host = try option.text()
            case "user": user = try option.text()
            case "all-sessions": goesToAllSessions = try option.boolean()
            case "same-as": deduplicationID = try option.text()
            default: throw option.unknown
            }
        }
        origin = try OutsideOrigin(host: host, user: user)
        try setRetention(isRetained, whileConnected: isWhileConnected)
        try checkForAllSessions()
    }

    /// Checks the options for posts from and to other sessions, `same-as` and `all-sessions`.
    func checkForAllSessions() throws(CenterError) {
        if let deduplicationID {
            // An ID is unique among the notifications of one user. It counts as arrived when the post is accepted, and
            // a queued post could still be replaced or withdrawn.
            guard origin?.user != nil, postingStyle == .now else {
                throw .invalidOption("same-as", reason: "it requires the option user and the posting style now")
            }
            guard (1...Self.maxDeduplicationIDBytes).contains(deduplicationID.utf8.count) else {
                throw .invalidOption("same-as", reason: "it must have 1 to \(Self.maxDeduplicationIDBytes) bytes")
            }
        }
        guard goesToAllSessions else { return }
        guard origin == nil else {
            throw .invalidOption(
                "all-sessions", reason: "a notification with an outside origin (host, user) is not exported again")
        }
    }

    /// Sets the retention from the options `retain` and `while-connected`, and checks the combination with other
    /// options.
    mutating func setRetention(_ isRetained: Bool, whileConnected: Bool) throws(CenterError) {
        guard isRetained || !whileConnected else {
            throw .invalidOption("while-connected", reason: "it requires the option retain")
        }
        guard !whileConnected || postingStyle != .atExit else {
            throw .invalidOption("while-connected", reason: "an at-exit post would be removed at once")
        }
        if isRetained { retention = Retention(whileConnected: whileConnected) }
        if expiresAfter == 0 { throw .invalidOption("expires-after", reason: "it must be at least 1 second") }
    }

    /// The options as entries of an `a{sv}`; those with default values are left out.
    var entries: [(key: String, value: PropertyList)] {
        var entries: [(key: String, value: PropertyList)] = []
        if deliverImmediately { entries.append(("deliver-immediately", .boolean(true))) }
        if postingStyle != .now { entries.append(("posting-style", .string(postingStyle.rawValue))) }
        if !coalescing.isEmpty {
            let keys = CoalescingKey.allCases.filter { coalescing.contains($0) }
            entries.append(("coalesce-on", .array(keys.map { .string($0.rawValue) })))
        }
        if let retention {
            entries.append(("retain", .boolean(true)))
            if retention.whileConnected { entries.append(("while-connected", .boolean(true))) }
        }
        if let expiresAfter { entries.append(("expires-after", .uint32(expiresAfter))) }
        if goesToAllSessions { entries.append(("all-sessions", .boolean(true))) }
        if let host = origin?.host { entries.append(("host", .string(host))) }
        if let user = origin?.user { entries.append(("user", .string(user))) }
        if let deduplicationID { entries.append(("same-as", .string(deduplicationID))) }
        return entries
    }

    /// Appends the options as an `a{sv}`.
    public func append(to writer: inout MessageWriter) {
        UserInfoCoding.append(entries, to: &writer)
    }
}
