// SPDX-License-Identifier: Apache-2.0
import CarillonWire
import Foundation

/// A userInfo as JSON (RFC 8259), as the `carillon` command reads and prints it.
///
/// Integers and floating-point numbers stay apart: a number without fraction and exponent is an integer, `1.0` is not. What
/// JSON lacks is written as an object with one key: data as `{"$data": "<base64>"}`, a date as `{"$date": "<ISO 8601>"}`, a
/// number that is not finite as `{"$double": "nan" | "inf" | "-inf"}`; a dictionary with one of these keys alone, and a text, is read
/// back as that. Threads: any.
public enum PropertyListJSON {
    /// Reads a JSON object.
    ///
    /// - Returns: what `post` takes as a userInfo, with the types in which a notification brings it.
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` for what is no JSON, no object, `null`, or a
    ///   number that no integer of 64 bits holds.
    public static func userInfo(from text: String) throws(DistributedNotificationError) -> [AnyHashable: Any] {
        do throws(CarillonWire.PropertyListJSON.Failure) {
            return UserInfoDecoder.decode(try CarillonWire.PropertyListJSON.userInfo(from: text))
        } catch {
            throw .invalidUserInfo(keyPath: "userInfo", reason: error.description)
        }
    }

    /// One line of JSON, with the keys of objects sorted.
    ///
    /// - Parameter userInfo: that of a notification; nil is an empty object.
    /// - Throws: ``DistributedNotificationError/invalidUserInfo(keyPath:reason:)`` for what is no property list.
    public static func text(_ userInfo: [AnyHashable: Any]?) throws(DistributedNotificationError) -> String {
        CarillonWire.PropertyListJSON.text(.dictionary(try UserInfoEncoder.encode(userInfo ?? [:])))
    }
}
