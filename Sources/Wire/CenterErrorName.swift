// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus error names specific to this service. The service replies with them, and clients classify errors by them.
public enum CenterErrorName: String, CaseIterable, Sendable {
    case invalidName = "org.carillon.Error.InvalidName"
    case invalidUserInfo = "org.carillon.Error.InvalidUserInfo"
    case invalidOption = "org.carillon.Error.InvalidOption"
    case unknownObserver = "org.carillon.Error.UnknownObserver"
    case limitExceeded = "org.carillon.Error.LimitExceeded"
    /// A reload was refused because of a mistake in a configuration file.
    case invalidConfiguration = "org.carillon.Error.InvalidConfiguration"
    /// Policy refuses the call; the message names the rule (P2).
    case notAllowed = "org.carillon.Error.NotAllowed"
    /// The configuration allows no channels (F2).
    case channelsDisabled = "org.carillon.Error.ChannelsDisabled"
}

extension CenterErrorName {
    /// The explanation of the error as part of a sentence, for errors that arrive as a name alone, such as the outcomes
    /// of ``PostMany``.
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

    /// The name for an error of the core.
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

    /// The error for arguments that violate the D-Bus layout, where they are decoded in place.
    static var malformedArguments: BusError { .invalidArgs("the arguments are malformed D-Bus data") }

    /// The service's own error; nil for D-Bus's errors, and for errors that only a later service has.
    public var centerError: CenterErrorName? { CenterErrorName(rawValue: name.rawValue) }

    /// The limit that the message of a `LimitExceeded` names behind the word `limit`; nil for other errors, and if the
    /// message names no limit, as in the outcomes of ``PostMany``.
    public var exceededLimit: Limits.Key? {
        guard centerError == .limitExceeded else { return nil }
        let words = message.split(separator: " ")
        guard let before = words.firstIndex(of: "limit"), before + 1 < words.endIndex else { return nil }
        return Limits.Key(rawValue: String(words[before + 1]))
    }

    /// Whether the service decoded and refused the call. A retry fails too, except after `LimitExceeded`, which may be
    /// temporary.
    public var isRefusal: Bool {
        name.rawValue.hasPrefix("org.carillon.Error.") || name == Self.invalidArgsName
    }

    /// Whether the program that owns the service's name refuses this client: the service refuses the call, the bus
    /// denies access, or the program is not the service. A retry fails too, except after `LimitExceeded`
    /// (``isRefusal``).
    public var meansNotServed: Bool {
        isRefusal
            || name == "org.freedesktop.DBus.Error.AccessDenied" || meansAnotherProgram
    }

    /// Whether the error shows that the name's owner has not the service's object or methods, so it is another program.
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
        guard let name = InterfaceName(rawValue: name.rawValue) else {
            preconditionFailure("every raw value is a valid D-Bus name")
        }
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
