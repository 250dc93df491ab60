// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The property `Configuration`: which files there are, and what is wrong with them (E9).
public struct ShownConfiguration: Equatable, Sendable {
    /// The paths of the files, the least important first.
    public var files: [String]
    /// Whether all of them are without a fault.
    public var isValid: Bool
    /// `FILE:LINE: reason`, or `FILE: reason` for one that can't be read.
    public var errors: [String]

    public init(files: [String], errors: [String]) {
        (self.files, self.errors) = (files, errors)
        isValid = errors.isEmpty
    }

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

    /// The property's value.
    var entries: [String: PropertyList] {
        func list(_ texts: [String]) -> PropertyList { .array(texts.map(PropertyList.string)) }
        return [Key.files: list(files), Key.valid: .boolean(isValid), Key.errors: list(errors)]
    }
}
