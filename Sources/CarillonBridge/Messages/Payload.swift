// SPDX-License-Identifier: Apache-2.0
import CBOR
import JSON
import NotificationWire

/// The userInfo of a notification as a message's payload.
enum Payload {
    /// JSON as the command prints it, for everybody. The widths of integers are not kept.
    static let contentType = "application/json"
    /// For names whose integers are to keep their widths.
    static let binaryContentType = "application/cbor"

    /// What is wrong with a payload.
    struct Malformed: Error, Equatable {
        let reason: String
    }

    static func json(of userInfo: [String: PropertyList]) -> [UInt8] {
        Array(PropertyListJSON.text(.dictionary(userInfo)).utf8)
    }

    static func cbor(of userInfo: [String: PropertyList]) -> [UInt8] {
        PropertyListCBOR.cbor(.dictionary(userInfo)).encoded
    }

    /// - Parameters:
    ///   - contentType: nil where the message has none: then it is JSON.
    ///   - keepsWidths: whether the integers of CBOR have the widths that they had.
    static func userInfo(
        _ bytes: [UInt8], contentType: String?, keepsWidths: Bool
    ) throws(Malformed) -> [String: PropertyList] {
        guard !bytes.isEmpty else { return [:] }
        // Parameters, such as the character set, stand behind a semicolon.
        let type = contentType?.prefix { $0 != ";" && $0 != " " }.lowercased() ?? Self.contentType
        switch type {
        case Self.contentType, "text/json": return try json(bytes)
        case Self.binaryContentType: return try cbor(bytes, keepsWidths: keepsWidths)
        default:
            throw Malformed(
                reason:
                    "its content type is '\(type.prefix(100))', neither \(Self.contentType) nor \(Self.binaryContentType)"
            )
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

    private static func cbor(_ bytes: [UInt8], keepsWidths: Bool) throws(Malformed) -> [String: PropertyList] {
        let cbor: CBOR
        do throws(CBOR.Malformed) {
            cbor = try CBOR(bytes)
        } catch {
            throw Malformed(reason: "it is no CBOR: \(error)")
        }
        do throws(PropertyListCBOR.Failure) {
            return try PropertyListCBOR.userInfo(from: cbor, keepsWidths: keepsWidths)
        } catch {
            throw Malformed(reason: error.description)
        }
    }
}
