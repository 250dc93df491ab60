// SPDX-License-Identifier: Apache-2.0
/// The application of the active window, for display to people.
package enum ActiveApplication: Equatable {
    case process(UInt32, name: String)
    /// An application of which only the id is known.
    case application(String)
    /// An unknown application: a window is active, and its owner is unknown.
    case unknown
    /// No application: no window is active.
    case nobody
}
