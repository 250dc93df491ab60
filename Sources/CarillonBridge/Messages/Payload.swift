// SPDX-License-Identifier: Apache-2.0
import CarillonCBOR
import CarillonJSON
import CarillonWire

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

    /// A payload for devices (G2), as ``userInfo(_:contentType:keepsWidths:)`` reads it: where there is nothing but an entry
    /// `value`, this alone, and otherwise an object of JSON.
    static func plain(of userInfo: [String: PropertyList]) -> (bytes: [UInt8], contentType: String) {
        guard userInfo.count == 1, let value = userInfo["value"] else {
            return (json(of: userInfo), contentType)
        }
        return switch value {
        case .string(let text): (Array(text.utf8), "text/plain")
        case .data(let bytes): (bytes, "application/octet-stream")
        case .dictionary: (json(of: userInfo), contentType)
        default: (Array(PropertyListJSON.text(value).utf8), contentType)
        }
    }

    /// Reads the payload of any device (G2). An object of JSON is userInfo; any other value is its entry `value`, and so is
    /// plain text, or data if it is no UTF-8. A `null` of JSON is left out. Without a content type a payload that begins as
    /// an object or an array is JSON.
    ///
    /// - Parameters:
    ///   - contentType: nil where the message has none.
    ///   - keepsWidths: whether the integers of CBOR have the widths that they had.
    /// - Throws: ``Malformed`` where the payload is not of its content type.
    static func userInfo(
        _ bytes: [UInt8], contentType: String?, keepsWidths: Bool
    ) throws(Malformed) -> [String: PropertyList] {
        guard !bytes.isEmpty else { return [:] }
        // Parameters, such as the character set, stand behind a semicolon.
        switch contentType?.prefix(while: { $0 != ";" && $0 != " " }).lowercased() {
        case Self.contentType, "text/json": return try json(bytes)
        case Self.binaryContentType: return try cbor(bytes, keepsWidths: keepsWidths)
        case nil:
            guard let json = try? json(bytes) else {
                if looksLikeJSON(bytes) { return try self.json(bytes) }
                return ["value": plain(bytes)]
            }
            return json
        case let type? where type.hasPrefix("text/"): return ["value": plain(bytes)]
        default: return ["value": .data(bytes)]
        }
    }

    private static func looksLikeJSON(_ bytes: [UInt8]) -> Bool {
        let first = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
    }

    private static func plain(_ bytes: [UInt8]) -> PropertyList {
        // A text of D-Bus has no NUL.
        guard !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) else { return .data(bytes) }
        return .string(text)
    }

    private static func json(_ bytes: [UInt8]) throws(Malformed) -> [String: PropertyList] {
        let json: JSON
        do throws(JSON.Malformed) {
            json = try JSON(bytes)
        } catch {
            throw Malformed(reason: "it is no JSON: \(error)")
        }
        guard let json = json.withoutNull else { return [:] }
        do throws(PropertyListJSON.Failure) {
            if case .object = json { return try PropertyListJSON.userInfo(from: json) }
            // Programs that know of no notifications publish a number, a word, a list.
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
