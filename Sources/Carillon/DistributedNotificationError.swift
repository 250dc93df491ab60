// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonWire

/// Why a distributed notification was not posted, or an observer not registered.
///
/// Calls in the style of macOS do not throw: what they refuse is logged, and counted in
/// ``DistributedNotificationCenter/Statistics``.
public enum DistributedNotificationError: Error, Hashable, Sendable {
    /// The name is empty, or holds a NUL character, which D-Bus can't carry (N1).
    case invalidName(String)
    /// The object is no string, or holds a NUL character (N3).
    case invalidObject(reason: String)
    /// Something in userInfo is no property-list value (N3).
    ///
    /// - Parameter keyPath: where, such as `userInfo.size[2]`.
    case invalidUserInfo(keyPath: String, reason: String)
    /// An option that is not supported, or not by this version of the service.
    case unsupportedOption(reason: String)
    /// A typed message could not be turned into a userInfo.
    case encodingFailed(type: String, reason: String)
    /// A value that the service keeps, or a post, is no value of the type of a ``DistributedValue`` or ``DistributedMessage``.
    case decodingFailed(type: String, reason: String)
    /// Beyond a limit of the service (E1).
    case limitExceeded(String)
    /// Policy does not let this application post or observe that; the text says which rule (P2, P3).
    case notAllowed(String)
    /// The program posts faster than the service takes it, and what waits in the process has reached its bound.
    case tooManyUnsentPosts(limit: Int)
    /// There is no service on the bus, and the bus can't start it.
    case serviceUnavailable(String)
    /// The service's name is owned by a program that is no notification center; the text says which.
    case nameTaken(String)
    /// There is no connection to the bus. Nothing was sent.
    case notConnected(String)
    /// The service ended before the answer came, or the connection to the bus. The post may have been made.
    case disconnected(String)
    /// The task was cancelled before the answer came. Its request may have been carried out, unless it was cancelled before.
    case cancelled
    /// The service, or the bus, refused for another reason.
    ///
    /// - Parameter name: the D-Bus error's.
    case refused(name: String, message: String)
}

extension DistributedNotificationError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .invalidName(let name):
            name.isEmpty
                ? "the name of a notification must not be empty"
                : "the name of a notification must not hold a NUL character"
        case .invalidObject(let reason): "object: \(reason)"
        case .invalidUserInfo(let keyPath, let reason): "\(keyPath): \(reason)"
        case .unsupportedOption(let reason): reason
        case .encodingFailed(let type, let reason): "\(type) can't be a userInfo: \(reason)"
        case .decodingFailed(let type, let reason): "the userInfo is no \(type): \(reason)"
        case .limitExceeded(let message), .notAllowed(let message): message
        case .tooManyUnsentPosts(let limit): "\(limit) posts wait to be sent already"
        case .serviceUnavailable(let message): "no notification center on the bus: \(message)"
        case .nameTaken(let message): message
        case .notConnected(let message): "no connection to the bus: \(message)"
        case .disconnected(let message): "no answer: \(message)"
        case .cancelled: "the task was cancelled before the answer came"
        case .refused(let name, let message): "\(name): \(message)"
        }
    }
}

extension DistributedNotificationError {
    init(_ error: ServiceError) {
        switch error {
        case .unavailable(let message): self = .serviceUnavailable(message)
        case .nameTaken(let message): self = .nameTaken(message)
        case .notConnected(let message): self = .notConnected(message)
        case .disconnected(let message): self = .disconnected(message)
        case .tooManyUnsentPosts(let limit): self = .tooManyUnsentPosts(limit: limit)
        case .refused(let error):
            switch error.centerError {
            case .limitExceeded: self = .limitExceeded(error.message)
            case .notAllowed: self = .notAllowed(error.message)
            case .invalidUserInfo: self = .invalidUserInfo(keyPath: "userInfo", reason: error.message)
            case .invalidOption: self = .unsupportedOption(reason: error.message)
            default: self = .refused(name: error.name.rawValue, message: error.message)
            }
        }
    }

    /// What is wrong with a post that was not made yet.
    init(_ error: CenterError) {
        switch error {
        case .invalidName: self = .invalidName("")
        case .invalidUserInfo(let path, let reason): self = .invalidUserInfo(keyPath: path, reason: reason)
        case .limitExceeded, .shareExceeded: self = .limitExceeded(error.description)
        case .invalidOption, .unknownObserver: self = .unsupportedOption(reason: error.description)
        }
    }
}
