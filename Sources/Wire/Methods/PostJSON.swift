// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that posts a notification with userInfo as JSON text, for programs that can send only strings
/// (B12).
public struct PostJSON: CenterMethod {
    public let name: String
    /// The object of the notification; empty for none.
    public let object: String
    /// A JSON object in the format of ``PropertyListJSON``; empty for none.
    public let userInfo: String

    /// The maximum length of the JSON text, in bytes. It is small because parsing JSON costs much more than checking an
    /// encoded dictionary; programs that can send only strings have short texts.
    public static let maxBytes = 64 << 10

    public init(name: String, object: String = "", userInfo: String = "") {
        (self.name, self.object, self.userInfo) = (name, object, userInfo)
    }

    public static let member: MemberName = "PostJSON"
    public static let inputs: [Interface.Argument] = [
        .init("name", "s"), .init("object", "s"), .init("user_info", "s"),
    ]
    public static let outputs: [Interface.Argument] = [.init("receivers", "u")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        name = try arguments.read()
        object = try arguments.read()
        userInfo = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
        writer.append(userInfo)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Int {
        Int(try reader.read(UInt32.self))
    }

    public static func append(_ reply: Int, to writer: inout MessageWriter) {
        writer.append(UInt32(reply))
    }

    /// Converts the call to a post as the service receives it.
    ///
    /// - Parameter check: A check of name and object, run before userInfo is parsed.
    /// - Throws: The error of `check`; ``CenterError/invalidUserInfo(path:reason:)`` for a text that is not a JSON
    ///   object; the errors of ``Post``; ``CenterError/limitExceeded(_:value:)``, also for a text longer than the limit
    ///   of userInfo, in bytes.
    public func post(
        limits: Limits, checking check: (String, String) throws(CenterError) -> Void
    ) throws(BusError) -> Post<WireUserInfo> {
        try mappingCenterErrors { () throws(CenterError) in
            try check(name, object)
            let limit = limits[.userInfoBytes]
            guard UInt64(userInfo.utf8.count) <= limit else { throw .limitExceeded(.userInfoBytes, value: limit) }
        }
        guard userInfo.utf8.count <= Self.maxBytes else {
            let message = "the JSON text has more than the \(Self.maxBytes) bytes that PostJSON accepts"
            throw BusError(.limitExceeded, message: message)
        }
        let call = try mappingCenterErrors { () throws(CenterError) -> Message in
            try PostCall(name: name, object: object, userInfo: try dictionary()).message()
        }
        return try Post(call, limits: limits, checking: check)
    }

    /// Parses the JSON text.
    private func dictionary() throws(CenterError) -> [String: PropertyList] {
        guard !userInfo.isEmpty else { return [:] }
        do throws(PropertyListJSON.Failure) {
            return try PropertyListJSON.userInfo(from: userInfo)
        } catch {
            throw .invalidUserInfo(path: "user_info", reason: error.description)
        }
    }
}
