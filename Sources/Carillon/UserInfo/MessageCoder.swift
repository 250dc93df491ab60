// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// The conversion of `Codable` messages and values into a userInfo and back. A type that is encoded with keys becomes
/// the userInfo itself. Any other type becomes its one entry, under the key `value`.
enum MessageCoder {
    /// The key of a value that is not encoded as a keyed container.
    private static let key = "value"

    /// Returns the userInfo entries of a message.
    static func entries(of message: some Encodable) throws(DistributedNotificationError) -> [String: PropertyList] {
        do {
            let value = try MessageEncoder.encode(message)
            guard case .dictionary(let entries) = value else { return [key: value] }
            return entries
        } catch let error as DistributedNotificationError {
            throw error
        } catch {
            throw .encodingFailed(type: String(describing: type(of: message)), reason: describe(error))
        }
    }

    /// Returns the userInfo of a message with Foundation's types.
    static func userInfo(of message: some Encodable) throws(DistributedNotificationError) -> [AnyHashable: Any] {
        UserInfoDecoder.decode(try entries(of: message))
    }

    /// Decodes a message from the entries of a userInfo.
    static func message<Message: Decodable>(
        _ type: Message.Type, from userInfo: [String: PropertyList]
    ) throws -> Message {
        do {
            return try MessageDecoder.decode(type, from: .dictionary(userInfo))
        } catch {
            // The type may be encoded without keys; the value is then under `value`. If that fails as well, the error
            // of the more likely form is thrown.
            let isSingle = wantsNoKeys(error)
            guard userInfo.count == 1, let value = userInfo[key] else {
                guard isSingle else { throw error }
                let keys = userInfo.isEmpty ? "nothing" : userInfo.keys.sorted().joined(separator: ", ")
                throw DecodingError.dataCorrupted(
                    .init(codingPath: [], debugDescription: "there is \(keys) instead of one value under '\(key)'"))
            }
            do {
                return try MessageDecoder.decode(type, from: value, at: CodingPath.root.appending(ValueKey()))
            } catch let other {
                throw isSingle ? other : error
            }
        }
    }

    /// Whether an error means that the type is encoded without keys: it expected another value than a dictionary.
    private static func wantsNoKeys(_ error: any Error) -> Bool {
        guard case DecodingError.typeMismatch(_, let context) = error else { return false }
        return context.codingPath.isEmpty
    }

    /// The coding key of the single entry.
    private struct ValueKey: CodingKey {
        var stringValue: String { key }
        var intValue: Int? { nil }

        init() {}
        init?(stringValue: String) { nil }
        init?(intValue: Int) { nil }
    }

    /// Decodes a message from a notification with Foundation's types.
    ///
    /// - Throws: the errors of decoding, and the error of a userInfo with a value that is not a property-list value.
    static func message<Message: Decodable>(
        _ type: Message.Type, from notification: Foundation.Notification
    ) throws -> Message {
        try message(type, from: UserInfoEncoder.encode(notification.userInfo ?? [:]))
    }

    /// Returns a text with the path to the value and the cause of a coding error.
    static func describe(_ error: any Error) -> String {
        let (path, reason): ([any CodingKey], String)
        switch error {
        case EncodingError.invalidValue(let value, let context):
            (path, reason) = (context.codingPath, "\(context.debugDescription) (\(type(of: value)))")
        case DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context),
            DecodingError.keyNotFound(_, let context), DecodingError.dataCorrupted(let context):
            (path, reason) = (context.codingPath, context.debugDescription)
        default: return "\(error)"
        }
        let place = path.map(\.stringValue).joined(separator: ".")
        return place.isEmpty ? reason : "\(place): \(reason)"
    }
}
