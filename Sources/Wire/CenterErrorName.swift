// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The errors specific to this service, by their names on the bus. This is the only table of them.
public enum CenterErrorName: String, CaseIterable, Sendable {
    case invalidName = "org.carillon.Error.InvalidName"
    case invalidUserInfo = "org.carillon.Error.InvalidUserInfo"
    case invalidOption = "org.carillon.Error.InvalidOption"
    case unknownObserver = "org.carillon.Error.UnknownObserver"
    case limitExceeded = "org.carillon.Error.LimitExceeded"
    case invalidConfiguration = "org.carillon.Error.InvalidConfiguration"
    /// A refusal by policy; the message names the rule (P2).
    case notAllowed = "org.carillon.Error.NotAllowed"
    /// A refusal of a channel, as the configuration allows none (F2).
    case channelsDisabled = "org.carillon.Error.ChannelsDisabled"
}

extension CenterErrorName {
    /// The explanation for a call or post whose error carries no message, as part of a sentence.
    public var words: String {
        switch self {
        case .invalidName: "its name is empty"
        case .invalidUserInfo: "its userInfo contains a value that is not a property-list value"
        case .invalidOption: "one of its options is unknown or has an invalid value"
        case .unknownObserver: "the program has no such observer"
        case .limitExceeded: "it exceeds a limit of the service"
        case .invalidConfiguration: "a configuration file of the service has a mistake"
        case .notAllowed: "policy does not allow it"
        case .channelsDisabled: "the configuration of the service allows no channels"
        }
    }

    init(_ error: CenterError) {
        switch error {
        case .invalidName: self = .invalidName
        case .invalidUserInfo: self = .invalidUserInfo
        case .invalidOption: self = .invalidOption
        case .unknownObserver: self = .unknownObserver
        case .limitExceeded, .shareExceeded: self = .limitExceeded
        }
    }
}

extension BusError {
    public init(_ error: CenterError) {
        self.init(CenterErrorName(error), message: error.description)
    }

    public init(_ name: CenterErrorName, message: String) {
        self.init(name: InterfaceName(name), message: message)
    }

    /// For arguments that are read where they lie.
    static var malformedArguments: BusError { .invalidArgs("the arguments are malformed D-Bus data") }

    /// The service's own error; nil for other errors, and for those of a later service.
    public var centerError: CenterErrorName? { CenterErrorName(rawValue: name.rawValue) }

    /// The limit named in the message of a `LimitExceeded`; nil for other errors, and for a message that names no
    /// limit, as for one post of several.
    public var exceededLimit: Limits.Key? {
        guard centerError == .limitExceeded else { return nil }
        let words = message.split(separator: " ")
        guard let before = words.firstIndex(of: "limit"), before + 1 < words.endIndex else { return nil }
        return Limits.Key(rawValue: String(words[before + 1]))
    }

    /// Whether the service understood and refused the call. A retry has the same result, except after `LimitExceeded`,
    /// which may pass.
    public var isRefusal: Bool {
        name.rawValue.hasPrefix("org.carillon.Error.") || name == Self.invalidArgsName
    }

    /// Whether the owner of the service's name does not serve this client. A retry has the result described at
    /// ``isRefusal``.
    public var meansNotServed: Bool {
        isRefusal
            || name == "org.freedesktop.DBus.Error.AccessDenied" || meansAnotherProgram
    }

    /// Whether the error comes from a program that has neither the service's object nor its methods.
    public var meansAnotherProgram: Bool {
        ["UnknownMethod", "UnknownInterface", "UnknownObject", "NotSupported"].contains {
            name.rawValue == "org.freedesktop.DBus.Error." + $0
        }
    }

    /// Whether the service's name has no owner, and the bus could not start the service.
    public var meansNoService: Bool {
        [BusError.serviceUnknownName, BusError.nameHasNoOwnerName, BusError.disconnectedName].contains(name)
            || name.rawValue.hasPrefix("org.freedesktop.DBus.Error.Spawn")
    }
}

extension InterfaceName {
    fileprivate init(_ name: CenterErrorName) {
        guard let name = InterfaceName(rawValue: name.rawValue) else { preconditionFailure("see the table above") }
        self = name
    }
}

/// Runs a rule of the core in a D-Bus handler, and converts its error.
public func mappingCenterErrors<Result>(
    _ body: () throws(CenterError) -> Result
) throws(BusError) -> Result {
    do throws(CenterError) {
        return try body()
    } catch {
        throw BusError(error)
    }
}
