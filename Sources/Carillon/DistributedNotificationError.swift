// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonWire

/// The reason why a distributed notification was not posted, or an observer not registered.
///
/// The methods of the macOS interface do not throw. They log a refused call and count it in
/// ``DistributedNotificationCenter/Statistics``.
public enum DistributedNotificationError: Error, Hashable, Sendable {
    /// The name is empty, or contains a NUL character, which D-Bus cannot carry (N1).
    case invalidName(String)
    /// The object is not a string, or contains a NUL character (N3).
    case invalidObject(reason: String)
    /// A value in the userInfo is not a property-list value (N3).
    ///
    /// - Parameter keyPath: the path to the value, such as `userInfo.size[2]`.
    case invalidUserInfo(keyPath: String, reason: String)
    /// An option is not supported, or not supported by this version of the service.
    case unsupportedOption(reason: String)
    /// A typed message cannot be encoded as a userInfo.
    case encodingFailed(type: String, reason: String)
    /// A retained value or a post cannot be decoded as the type of a ``DistributedValue`` or ``DistributedMessage``.
    case decodingFailed(type: String, reason: String)
    /// The request exceeds a limit of the service; the text names the limit (E1).
    case limitExceeded(String)
    /// The policy does not permit this application to post or observe the name; the text names the rule (P2, P3).
    case notAllowed(String)
    /// The program posts faster than the service accepts, and the posts that wait in the process have reached their
    /// limit.
    case tooManyUnsentPosts(limit: Int)
    /// There is no service on the bus, and the bus can't start it.
    case serviceUnavailable(String)
    /// The service's name is owned by a program that is not a notification center; the text names that program.
    case nameTaken(String)
    /// There is no connection to the bus. Nothing was sent.
    case notConnected(String)
    /// The service, or the connection to the bus, ended before the answer arrived. The post may have been made.
    case disconnected(String)
    /// The task was cancelled before the answer arrived. The request may have been carried out, unless the task was
    /// cancelled before the call.
    case cancelled
    /// The service or the bus refused the request for another reason.
    ///
    /// - Parameter name: the name of the D-Bus error.
    case refused(name: String, message: String)
}

extension DistributedNotificationError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .invalidName(let name):
            name.isEmpty
                ? "the name of a notification must not be empty"
                : "the name of a notification must not contain a NUL character"
        case .invalidObject(let reason): "object: \(reason)"
        case .invalidUserInfo(let keyPath, let reason): "\(keyPath): \(reason)"
        case .unsupportedOption(let reason): reason
        case .encodingFailed(let type, let reason): "\(type) can't be a userInfo: \(reason)"
        case .decodingFailed(let type, let reason): "the userInfo is not a \(type): \(reason)"
        case .limitExceeded(let message), .notAllowed(let message): message
        case .tooManyUnsentPosts(let limit): "\(limit) unsent posts are queued already"
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

    /// Converts the error of a post that was not made.
    init(_ error: CenterError) {
        switch error {
        // Without the name: the center has refused invalid names before, with their text.
        case .invalidName: self = .invalidName("")
        case .invalidUserInfo(let path, let reason): self = .invalidUserInfo(keyPath: path, reason: reason)
        case .limitExceeded, .shareExceeded: self = .limitExceeded(error.description)
        case .invalidOption, .unknownObserver: self = .unsupportedOption(reason: error.description)
        }
    }
}
