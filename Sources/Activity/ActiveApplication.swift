// SPDX-License-Identifier: Apache-2.0
/// The application of the active window, as the service's status shows it to the user.
package enum ActiveApplication: Equatable {
    /// The process id, and the short name of the program.
    case process(UInt32, name: String)
    /// An application of which only the id is known.
    case application(String)
    /// An unknown application: a window is active, and its owner is unknown.
    case unknown
    /// No application: no window is active.
    case nobody
}
