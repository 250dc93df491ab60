// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The filter of the options `--glob` and `--match` for arriving notifications. This process applies it; the service
/// sends all notifications that match the registrations.
struct NotificationFilter {
    /// The condition of one `--match` on an entry of userInfo.
    fileprivate struct Condition {
        let key: String
        /// The required value, as a text and as `carillon post` would infer its type; nil if the entry only has to
        /// exist.
        let value: (text: String, inferred: PropertyList)?
    }

    /// The pattern for names, as it was given.
    let glob: String?
    private let names: GlobPattern?
    private let conditions: [Condition]

    /// - Parameters:
    ///   - glob: a pattern for names; nil for all.
    ///   - matches: conditions `KEY=VALUE` or `KEY`, all of which have to hold.
    init(glob: String?, matches: [String]) throws(UsageError) {
        if glob?.isEmpty == true { throw UsageError("--glob: '' matches no name") }
        self.glob = glob
        names = glob.map(GlobPattern.init)
        var conditions: [Condition] = []
        for text in matches {
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard !parts[0].isEmpty else { throw UsageError("--match: '\(text)' is neither KEY nor KEY=VALUE") }
            let value = parts.count > 1 ? (parts[1], try UserInfoArguments.infer(parts[1])) : nil
            conditions.append(Condition(key: parts[0], value: value))
        }
        self.conditions = conditions
    }

    /// Whether the name matches the pattern, and all conditions hold.
    func passes(_ arrival: Arrival) -> Bool {
        if let names, !names.matches(arrival.notification.name) { return false }
        return conditions.allSatisfy { $0.holds(in: arrival.userInfo) }
    }
}

extension NotificationFilter.Condition {
    /// Whether the entry exists, and has the same text or, for a number, the same value.
    func holds(in userInfo: [String: PropertyList]) -> Bool {
        guard let found = Self.entry(key, in: userInfo) else { return false }
        guard let value else { return true }
        if found.readable == value.text { return true }
        guard let found = found.number, let wanted = value.inferred.number else { return false }
        return found == wanted
    }

    /// Returns the entry of this key. If there is none, the key `a.b` means the entry `b` of the dictionary `a`, at any
    /// depth.
    private static func entry(_ key: String, in dictionary: [String: PropertyList]) -> PropertyList? {
        if let value = dictionary[key] { return value }
        for (index, character) in zip(key.indices, key) where character == "." {
            guard case .dictionary(let inner)? = dictionary[String(key[..<index])] else { continue }
            return entry(String(key[key.index(after: index)...]), in: inner)
        }
        return nil
    }
}

extension PropertyList {
    /// The value as a number, for comparison with a number of any type; nil for other types, and for 64-bit integers
    /// that a `Double` can't represent. These match only by their text.
    fileprivate var number: Double? {
        switch self {
        case .uint8(let value): Double(value)
        case .int16(let value): Double(value)
        case .uint16(let value): Double(value)
        case .int32(let value): Double(value)
        case .uint32(let value): Double(value)
        case .int64(let value): Double(exactly: value)
        case .uint64(let value): Double(exactly: value)
        case .double(let value): value
        case .string, .boolean, .data, .date, .array, .dictionary: nil
        }
    }
}
