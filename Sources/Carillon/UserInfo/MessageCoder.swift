// SPDX-License-Identifier: Apache-2.0
import Foundation
import NotificationCore
import NotificationWire

/// Codable types as userInfo and back.
enum MessageCoder {
    /// Under it travels what is not coded as a keyed container.
    private static let key = "value"

    /// The entries under which a message travels.
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
            // A single value; its type would not have been coded as one with keys.
            guard userInfo.count == 1, let value = userInfo[key],
                let message = try? MessageDecoder.decode(type, from: value)
            else { throw error }
            return message
        }
    }

    /// - Throws: also what in its userInfo is no property-list value.
    static func message<Message: Decodable>(
        _ type: Message.Type, from notification: Foundation.Notification
    ) throws -> Message {
        try message(type, from: UserInfoEncoder.encode(notification.userInfo ?? [:]))
    }

    private static func describe(_ error: any Error) -> String {
        guard case EncodingError.invalidValue(let value, let context) = error else { return "\(error)" }
        let path = context.codingPath.map(\.stringValue).joined(separator: ".")
        return "\(path.isEmpty ? "" : path + ": ")\(context.debugDescription) (\(type(of: value)))"
    }
}
