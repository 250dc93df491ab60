// SPDX-License-Identifier: Apache-2.0
/// The reason why the center refuses an event, such as a post or a registration. The caller gets it as a D-Bus error.
///
/// A refused event changes nothing, except that it may remove expired state before its check.
public enum CenterError: Error, Equatable, Sendable {
    /// The name of a post is empty (N1).
    case invalidName
    /// A value in userInfo is not a property-list value (N3).
    ///
    /// - Parameter path: the position of the value, such as `userInfo.size[2]`.
    case invalidUserInfo(path: String, reason: String)
    /// An option is unknown, or its value is not allowed.
    case invalidOption(String, reason: String)
    /// The caller has no observer with this number.
    case unknownObserver(ObserverID)
    /// The event would exceed this limit (E1). `value` is the limit, in the unit of its key: a number, or bytes.
    case limitExceeded(Limits.Key, value: UInt64)
    /// The total has capacity left, but the caller's process or sandbox would exceed its share of it (E4). `value` is
    /// the limit of the total.
    case shareExceeded(Limits.Key, value: UInt64)
}

extension CenterError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .invalidName: "the name of a notification must not be empty"
        case .invalidUserInfo(let path, let reason): "\(path): \(reason)"
        case .invalidOption(let key, let reason): "option '\(key)': \(reason)"
        case .unknownObserver(let id): "the caller has no observer \(id.rawValue)"
        case .limitExceeded(let key, let value): "over the limit \(key.rawValue) = \(value)"
        case .shareExceeded(let key, let value):
            "over the limit \(key.rawValue) = \(value) of all processes together: a process may use at most 7/8 "
                + "of the part that the others do not use"
        }
    }
}

extension Limits {
    /// Checks a new amount against one limit. An amount of zero or less always passes.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)`` when `value` is greater than the limit.
    public func check(_ key: Key, _ value: Int) throws(CenterError) {
        let limit = self[key]
        guard value <= 0 || UInt64(value) <= limit else { throw .limitExceeded(key, value: limit) }
    }
}
