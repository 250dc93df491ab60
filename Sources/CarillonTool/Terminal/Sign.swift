// SPDX-License-Identifier: Apache-2.0

/// The signs of a table for a cell without a text.
enum Sign {
    /// There is none, as an object of a notification that has none.
    static let none = "-"
    /// Nobody could tell.
    static let unknown = "?"
    /// An observer's name or object that stands for all.
    static let any = "*"
}
