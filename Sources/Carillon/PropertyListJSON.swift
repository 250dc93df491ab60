// SPDX-License-Identifier: Apache-2.0
import CarillonWire
import Foundation

/// The conversion of a userInfo to JSON (RFC 8259) and back, in the format of the `carillon` command.
///
/// Integers and floating-point numbers are distinct: a number without fraction and exponent is an integer, `1.0` is
/// not. A value that JSON lacks is written as an object with one key:
///
/// - data: `{"$data": "<base64>"}`
/// - a date: `{"$date": "<ISO 8601>"}`
/// - a number that is not finite: `{"$double": "nan" | "inf" | "-inf"}`
///
/// A dictionary with one of these keys alone, and a text as its value, is read back as such a value. Threads: any.
public enum PropertyListJSON {
    /// Reads a JSON object.
    ///
    /// - Returns: a userInfo for `post`, with the types of a received notification.
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` for a text that is not JSON, is not
    ///   an object, or contains `null` or an integer that does not fit in 64 bits.
    public static func userInfo(from text: String) throws(DistributedNotificationError) -> [AnyHashable: Any] {
        do throws(CarillonWire.PropertyListJSON.Failure) {
            return UserInfoDecoder.decode(try CarillonWire.PropertyListJSON.userInfo(from: text))
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo", reason: error.description)
        }
    }

    /// Returns a userInfo as one line of JSON, with the keys of objects sorted.
    ///
    /// - Parameter userInfo: the userInfo of a notification; nil is an empty object.
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` for a value that is not a property
    ///   list.
    public static func text(_ userInfo: [AnyHashable: Any]?) throws(DistributedNotificationError) -> String {
        CarillonWire.PropertyListJSON.text(.dictionary(try UserInfoEncoder.encode(userInfo ?? [:])))
    }
}
