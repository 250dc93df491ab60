// SPDX-License-Identifier: Apache-2.0

/// The signs that tables for people show in a cell without a value.
enum Sign {
    /// There is no value, such as no object of a notification.
    static let none = "-"
    /// The value is unknown.
    static let unknown = "?"
    /// An observer matches any name, or any object.
    static let any = "*"
}
