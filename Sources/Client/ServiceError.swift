// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonWire

/// Why something that was asked of the service was not done.
public enum ServiceError: Error, Hashable, Sendable {
    /// The service, or the bus, understood and said no.
    case refused(BusError)
    /// There is no service on the bus, and the bus can't start it.
    case unavailable(String)
    /// The service's name is owned by a program that is no notification center; the text says which.
    case nameTaken(String)
    /// There is no connection to the bus. The request was not sent.
    case notConnected(String)
    /// The service ended before the answer came, or the connection to the bus. The request may have been carried out.
    case disconnected(String)
    /// Too much waits to be sent already; the limit is a number of posts.
    case tooManyUnsentPosts(limit: Int)

    public init(_ error: BusError) {
        if error.name == BusError.disconnectedName || error.name == BusError.noReplyName {
            self = .disconnected(error.message)
        } else if error.meansNoService {
            self = .unavailable(error.message)
        } else {
            self = .refused(error)
        }
    }
}

extension ServiceError {
    /// The same error for what was not sent because of it.
    var ofUnsent: ServiceError { if case .disconnected(let reason) = self { .notConnected(reason) } else { self } }
}

extension ServiceError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .refused(let error): error.centerError == nil ? error.description : error.message
        case .unavailable(let message): "no notification center on the bus: \(message)"
        case .nameTaken(let message): message
        case .notConnected(let message): "no connection to the bus: \(message)"
        case .disconnected(let message): "no answer: \(message)"
        case .tooManyUnsentPosts(let limit): "\(limit) posts wait to be sent already"
        }
    }
}
