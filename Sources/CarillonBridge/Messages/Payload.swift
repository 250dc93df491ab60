// SPDX-License-Identifier: Apache-2.0
import JSON
import NotificationWire

/// The userInfo of a notification as a message's payload.
enum Payload {
    /// In which form this bridge writes it. It reads each.
    enum Format: String, CaseIterable {
        /// As the command prints it: for everybody. The widths of integers are not kept.
        case json = "json"

        var contentType: String {
            switch self {
            case .json: "application/json"
            }
        }
    }

    /// What is wrong with a payload.
    struct Malformed: Error, Equatable {
        let reason: String
    }

    static func bytes(of userInfo: [String: PropertyList], as format: Format) -> [UInt8] {
        switch format {
        case .json: Array(PropertyListJSON.text(.dictionary(userInfo)).utf8)
        }
    }

    /// - Parameter contentType: nil where the message has none: then it is JSON.
    static func userInfo(_ bytes: [UInt8], contentType: String?) throws(Malformed) -> [String: PropertyList] {
        guard !bytes.isEmpty else { return [:] }
        // Parameters, such as the character set, stand behind a semicolon.
        let type = contentType?.prefix { $0 != ";" && $0 != " " }.lowercased() ?? Format.json.contentType
        switch type {
        case Format.json.contentType, "text/json": return try json(bytes)
        default: throw Malformed(reason: "its content type is '\(type.prefix(100))', not \(Format.json.contentType)")
        }
    }

    private static func json(_ bytes: [UInt8]) throws(Malformed) -> [String: PropertyList] {
        let json: JSON
        do throws(JSON.Malformed) {
            json = try JSON(bytes)
        } catch {
            throw Malformed(reason: "it is no JSON: \(error)")
        }
        do throws(PropertyListJSON.Failure) {
            if case .object = json { return try PropertyListJSON.userInfo(from: json) }
            // What programs publish that know of no notifications: a number, a word, a list.
            return try PropertyListJSON.userInfo(from: .object(["value": json]))
        } catch {
            throw Malformed(reason: error.description)
        }
    }
}
