// SPDX-License-Identifier: Apache-2.0

/// The signs of a table for a cell without a text.
enum Sign {
    /// There is no value, such as no object of a notification.
    static let none = "-"
    /// The value is unknown.
    static let unknown = "?"
    /// The name or object of an observer for any.
    static let any = "*"
}
