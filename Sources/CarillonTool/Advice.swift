// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonWire

/// The advice that a command prints below an error: the next step for the user.
enum Advice {
    /// The advice if there is no bus.
    static let withoutBus = """
        A session bus belongs to a session. Without one, as in a container or behind sudo, 'dbus-run-session -- bash' \
        starts one.
        """

    /// Returns the advice after an error of the service; nil if the error needs none.
    static func after(_ error: ServiceError) -> String? {
        switch error {
        case .unavailable:
            "An installed carillond is started by the bus; by hand, 'carillond &' starts one."
        case .nameTaken:
            "Nothing is posted or observed while that program owns the name \(Wire.busName): end it, and try again."
        case .refused(let error): after(error)
        case .notConnected, .disconnected, .tooManyUnsentPosts: nil
        }
    }

    private static func after(_ error: BusError) -> String? {
        switch error.centerError {
        case .notAllowed: "'carillon status' shows the permissions; carillond(1) explains how to change them."
        case .limitExceeded: "'carillon status --json' shows all limits; carillond(1) explains how to change them."
        default:
            error.name == "org.freedesktop.DBus.Error.AccessDenied"
                ? "The bus itself refused this, by its own policy or that of a sandbox." : nil
        }
    }
}
