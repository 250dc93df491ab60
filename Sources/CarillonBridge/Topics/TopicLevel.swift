// SPDX-License-Identifier: Apache-2.0

/// The encoding of any text as one level of an MQTT topic. Characters that MQTT forbids or interprets are
/// percent-encoded: each of their UTF-8 bytes is written as a percent sign and two hexadecimal digits.
enum TopicLevel {
    /// Returns a text as a level.
    static func encoded(_ text: some StringProtocol) -> String {
        guard text.unicodeScalars.contains(where: isSpecial) else { return String(text) }
        var result = ""
        for scalar in text.unicodeScalars {
            guard isSpecial(scalar) else {
                result.unicodeScalars.append(scalar)
                continue
            }
            for byte in UTF8.encode(scalar)! {
                result += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }
        return result
    }

    /// Returns the text of a level.
    ///
    /// - Returns: nil if a percent sign is not followed by two hexadecimal digits, and for a text that D-Bus does not
    ///   allow: invalid UTF-8, or a NUL character.
    static func decoded(_ level: some StringProtocol) -> String? {
        guard level.utf8.contains(UInt8(ascii: "%")) else { return String(level) }
        var bytes: [UInt8] = []
        var rest = Array(level.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(digit), let low = rest.popFirst().flatMap(digit) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return bytes.contains(0) ? nil : String(validating: bytes, as: UTF8.self)
    }

    /// Whether MQTT accepts a scalar in a topic level or a property as it is. It does not accept control characters and
    /// noncharacters: a broker may end the connection because of them.
    static func isAllowed(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0...0x1F, 0x7F...0x9F, 0xFDD0...0xFDEF: false
        // The last two code points of each plane, such as U+FFFE and U+FFFF, are noncharacters.
        default: scalar.value & 0xFFFE != 0xFFFE
        }
    }

    /// Whether a scalar has to be encoded in a topic level.
    private static func isSpecial(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar {
        case "/", "+", "#", "%": true
        default: !isAllowed(scalar)
        }
    }

    /// Returns the value of a hexadecimal digit; nil for any other byte.
    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        default: nil
        }
    }
}
