// SPDX-License-Identifier: Apache-2.0
/// Whose window is active, for people.
package enum ActiveApplication: Equatable {
    case process(UInt32, name: String)
    /// Only its id is known.
    case application(String)
    /// There is an active window, and nobody knows whose.
    case unknown
    /// No window is active.
    case nobody
}
