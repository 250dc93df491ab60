// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonWire

/// The advice after an error: the next step for the user.
enum Advice {
    static let withoutBus = """
        A session bus belongs to a session. Where there is none, as in a container or behind sudo, 'dbus-run-session -- bash' \
        starts one.
        """

    /// - Returns: nil if the error explains itself.
    static func after(_ error: ServiceError) -> String? {
        switch error {
        case .unavailable:
            "An installed carillond is started by the bus; by hand, 'carillond &' starts one."
        case .nameTaken:
            "Nothing is posted or observed while that program has the name \(Wire.busName): end it, and try again."
        case .refused(let error): after(error)
        case .notConnected, .disconnected, .tooManyUnsentPosts: nil
        }
    }

    private static func after(_ error: BusError) -> String? {
        switch error.centerError {
        case .notAllowed: "'carillon status' shows who may do what; carillond(1) says how that is changed."
        case .limitExceeded: "'carillon status --json' shows all limits; carillond(1) says how they are changed."
        default:
            error.name == "org.freedesktop.DBus.Error.AccessDenied"
                ? "It is the bus that refused, by its own policy or that of a sandbox." : nil
        }
    }
}
