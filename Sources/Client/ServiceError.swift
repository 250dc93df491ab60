// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonWire

/// The reason why a request to the service failed.
public enum ServiceError: Error, Hashable, Sendable {
    /// The service or the bus refused the request.
    case refused(BusError)
    /// There is no service on the bus, and the bus can't start it.
    case unavailable(String)
    /// A program that is no notification center owns the service's name; the text names that program.
    case nameTaken(String)
    /// There is no connection to the bus. The request was not sent.
    case notConnected(String)
    /// The service or the connection to the bus ended before the answer arrived. The request may have been carried out.
    case disconnected(String)
    /// The queue of unsent posts is full; `limit` is its maximum number of posts.
    case tooManyUnsentPosts(limit: Int)

    /// Classifies an error of the bus: no answer, no service, or a refusal.
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
    /// The error for requests that were not sent because of this one. It never says that the outcome is unknown.
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
        case .tooManyUnsentPosts(let limit): "\(limit) unsent posts are queued already"
        }
    }
}
