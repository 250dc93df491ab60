// SPDX-License-Identifier: Apache-2.0

/// What stands in a table where there is no text to show.
enum Sign {
    /// There is none, as an object of a notification that has none.
    static let none = "-"
    /// Nobody could tell.
    static let unknown = "?"
    /// An observer's name or object that stands for all.
    static let any = "*"
}
