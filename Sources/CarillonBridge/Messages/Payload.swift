// SPDX-License-Identifier: Apache-2.0
import CarillonCBOR
import CarillonJSON
import CarillonWire

/// The conversion between the userInfo of a notification and the payload of an MQTT message.
enum Payload {
    /// The content type of JSON, the default: every program can read it. It does not keep the widths of integers.
    static let contentType = "application/json"
    /// The content type of CBOR, for names whose integers keep their widths.
    static let binaryContentType = "application/cbor"

    /// The fault of a received payload.
    struct Malformed: Error, Equatable {
        let reason: String
    }

    /// Returns userInfo as JSON.
    static func json(of userInfo: [String: PropertyList]) -> [UInt8] {
        Array(PropertyListJSON.text(.dictionary(userInfo)).utf8)
    }

    /// Returns userInfo as CBOR, with the widths of its integers.
    static func cbor(of userInfo: [String: PropertyList]) -> [UInt8] {
        PropertyListCBOR.cbor(.dictionary(userInfo)).encoded
    }

    /// Returns userInfo as a payload for devices (G2), which ``userInfo(_:contentType:keepsWidths:)`` reads. If the
    /// only entry is `value` and no dictionary, the payload is that value alone; otherwise it is a JSON object.
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

    /// Reads the payload of a bridge or of any device (G2).
    ///
    /// - A JSON object, or a CBOR map, is the userInfo.
    /// - Any other JSON or CBOR value, a plain text, or other bytes are the entry `value`.
    /// - A JSON `null` is left out.
    /// - Without a content type, a payload that is valid JSON, or begins like a JSON object or array, is JSON.
    ///
    /// - Parameters:
    ///   - contentType: nil for a message without a content type.
    ///   - keepsWidths: whether the widths of CBOR integers are significant.
    /// - Throws: ``Malformed`` for a payload that does not have the format of its content type.
    static func userInfo(
        _ bytes: [UInt8], contentType: String?, keepsWidths: Bool
    ) throws(Malformed) -> [String: PropertyList] {
        guard !bytes.isEmpty else { return [:] }
        // Parameters, such as the character set, follow a semicolon.
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

    /// Whether the first character after white space begins a JSON object or array.
    private static func looksLikeJSON(_ bytes: [UInt8]) -> Bool {
        let first = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
    }

    /// Returns a text, or data if the bytes are no text.
    private static func plain(_ bytes: [UInt8]) -> PropertyList {
        // A string in D-Bus can't contain NUL.
        guard !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) else { return .data(bytes) }
        return .string(text)
    }

    /// Reads a JSON payload.
    private static func json(_ bytes: [UInt8]) throws(Malformed) -> [String: PropertyList] {
        let json: JSON
        do throws(JSON.Malformed) {
            json = try JSON(bytes)
        } catch {
            throw Malformed(reason: "it is not JSON: \(error)")
        }
        guard let json = json.withoutNull else { return [:] }
        do throws(PropertyListJSON.Failure) {
            if case .object = json { return try PropertyListJSON.userInfo(from: json) }
            // Other programs at the broker publish a single number, string or list.
            return try PropertyListJSON.userInfo(from: .object(["value": json]))
        } catch {
            throw Malformed(reason: error.description)
        }
    }

    /// Reads a CBOR payload.
    private static func cbor(_ bytes: [UInt8], keepsWidths: Bool) throws(Malformed) -> [String: PropertyList] {
        let cbor: CBOR
        do throws(CBOR.Malformed) {
            cbor = try CBOR(bytes)
        } catch {
            throw Malformed(reason: "it is not CBOR: \(error)")
        }
        do throws(PropertyListCBOR.Failure) {
            return try PropertyListCBOR.userInfo(from: cbor, keepsWidths: keepsWidths)
        } catch {
            throw Malformed(reason: error.description)
        }
    }
}
