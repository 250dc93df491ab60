// SPDX-License-Identifier: Apache-2.0
/// A property-list value: the type of the values in a userInfo dictionary (N3). Each integer type of D-Bus has a case
/// of its own, so that a value arrives with the type with which it was posted.
public enum PropertyList: Hashable, Sendable {
    case string(String)
    case boolean(Bool)
    case uint8(UInt8)
    case int16(Int16)
    case uint16(UInt16)
    case int32(Int32)
    case uint32(UInt32)
    case int64(Int64)
    case uint64(UInt64)
    case double(Double)
    /// Bytes; an array of bytes (`ay`) on the bus.
    case data([UInt8])
    /// A structure `(x)` on the bus: microseconds since 1970-01-01 00:00 UTC, without leap seconds.
    case date(microsecondsSince1970: Int64)
    case array([PropertyList])
    case dictionary([String: PropertyList])
}
