import Foundation
import NotificationCore
import NotificationWire

/// Codable types as userInfo and back, through Foundation's property lists.
enum MessageCoder {
    /// Under it travels what is not coded as a keyed container.
    private static let key = "value"

    /// Foundation's encoder takes no single value at the top, so the message is always inside of this.
    private struct Box<Value: Codable>: Codable {
        var value: Value
    }

    static func userInfo(of message: some Codable) throws(DistributedNotificationError) -> [AnyHashable: Any] {
        do {
            let encoder = PropertyListEncoder()
            encoder.outputFormat = .binary
            let data = try encoder.encode(Box(value: message))
            let box = try PropertyListSerialization.propertyList(from: data, format: nil) as? [String: Any] ?? [:]
            if let entries = box[key] as? [String: Any] { return entries }
            return box
        } catch {
            throw .encodingFailed(type: String(describing: type(of: message)), reason: describe(error))
        }
    }

    static func message<Message: Codable>(
        _ type: Message.Type, from userInfo: [String: PropertyList]
    ) throws -> Message {
        let entries = userInfo.mapValues(UserInfoDecoder.decode)
        do {
            return try decode(Box<Message>.self, from: [key: entries]).value
        } catch {
            // A single value; its type would not have been coded as one with keys.
            guard userInfo.count == 1, userInfo[key] != nil, let box = try? decode(Box<Message>.self, from: entries)
            else { throw error }
            return box.value
        }
    }

    /// - Throws: also what in its userInfo is no property-list value.
    static func message<Message: Codable>(
        _ type: Message.Type, from notification: Foundation.Notification
    ) throws -> Message {
        try message(type, from: UserInfoEncoder.encode(notification.userInfo ?? [:]))
    }

    private static func decode<Value: Decodable>(_ type: Value.Type, from entries: [String: Any]) throws -> Value {
        let data = try PropertyListSerialization.data(fromPropertyList: entries, format: .binary, options: 0)
        return try PropertyListDecoder().decode(type, from: data)
    }

    private static func describe(_ error: any Error) -> String {
        guard case EncodingError.invalidValue(let value, let context) = error else { return "\(error)" }
        let path = context.codingPath.dropFirst().map(\.stringValue).joined(separator: ".")
        return "\(path.isEmpty ? "" : path + ": ")\(context.debugDescription) (\(type(of: value)))"
    }
}
