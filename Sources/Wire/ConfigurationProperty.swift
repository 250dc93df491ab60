// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The value of the D-Bus property `Configuration`: the configuration files that the service has read, and their errors
/// (E9). `carillon` shows it.
public struct ConfigurationProperty: Equatable, Sendable {
    /// The paths of the files, in ascending precedence.
    public var files: [String]
    /// Whether all files are free of errors.
    public var isValid: Bool
    /// Each error as `FILE:LINE: reason`, or `FILE: reason` for an unreadable file.
    public var errors: [String]

    public init(files: [String], errors: [String]) {
        (self.files, self.errors) = (files, errors)
        isValid = errors.isEmpty
    }

    /// The keys of the property.
    private enum Key {
        static let files = "files"
        static let valid = "valid"
        static let errors = "errors"
    }

    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        files = try rest.take(Key.files, \.strings)
        isValid = try rest.take(Key.valid, \.boolean)
        errors = try rest.take(Key.errors, \.strings)
    }

    /// The value of the property.
    var entries: [String: PropertyList] {
        func list(_ texts: [String]) -> PropertyList { .array(texts.map(PropertyList.string)) }
        return [Key.files: list(files), Key.valid: .boolean(isValid), Key.errors: list(errors)]
    }
}
