// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// The conversion of Codable types into a userInfo and back.
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

    static func userInfo(of message: some Encodable) throws(DistributedNotificationError) -> [AnyHashable: Any] {
        UserInfoDecoder.decode(try entries(of: message))
    }

    static func message<Message: Decodable>(
        _ type: Message.Type, from userInfo: [String: PropertyList]
    ) throws -> Message {
        do {
            return try MessageDecoder.decode(type, from: .dictionary(userInfo))
        } catch {
            // The entry may be a single value, whose type is not encoded with keys.
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

    /// Whether an error means that the type is encoded without keys.
    private static func wantsNoKeys(_ error: any Error) -> Bool {
        guard case DecodingError.typeMismatch(_, let context) = error else { return false }
        return context.codingPath.isEmpty
    }

    private struct ValueKey: CodingKey {
        var stringValue: String { key }
        var intValue: Int? { nil }

        init() {}
        init?(stringValue: String) { nil }
        init?(intValue: Int) { nil }
    }

    /// - Throws: the errors of decoding, and the error of a userInfo with a value that is not a property-list value.
    static func message<Message: Decodable>(
        _ type: Message.Type, from notification: Foundation.Notification
    ) throws -> Message {
        try message(type, from: UserInfoEncoder.encode(notification.userInfo ?? [:]))
    }

    /// Returns the coding path and the cause of a coding error, in a sentence.
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
