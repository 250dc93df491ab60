import DBus
import NotificationCore

/// The one place where a domain error gets its name on the bus.
extension BusError {
    public init(_ error: CenterError) {
        let name: InterfaceName =
            switch error {
            case .invalidName: "org.carillon.Error.InvalidName"
            case .invalidUserInfo: "org.carillon.Error.InvalidUserInfo"
            case .invalidOption: "org.carillon.Error.InvalidOption"
            case .unknownObserver: "org.carillon.Error.UnknownObserver"
            case .limitExceeded: "org.carillon.Error.LimitExceeded"
            }
        self.init(name: name, message: error.description)
    }

    /// Whether it says that nobody provides the service, and the bus could not start it.
    public var meansNoService: Bool {
        [BusError.serviceUnknownName, BusError.nameHasNoOwnerName, BusError.disconnectedName].contains(name)
            || name.rawValue.hasPrefix("org.freedesktop.DBus.Error.Spawn")
    }
}

/// Runs a rule of the core inside a D-Bus handler.
public func mappingCenterErrors<Result>(
    _ body: () throws(CenterError) -> Result
) throws(BusError) -> Result {
    do throws(CenterError) {
        return try body()
    } catch {
        throw BusError(error)
    }
}
