// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Why a call, or a connection, failed.
public struct MQTTError: Error, Equatable, Sendable {
    public enum Cause: Hashable, Sendable {
        /// The broker did not take the connection.
        case refused(ReasonCode)
        /// The broker ended the connection, and said why.
        case ended(ReasonCode)
        /// The connection ended without a word.
        case connectionLost
        /// Nothing was heard for so long that the connection counts as lost, or was not made in time.
        case noAnswer
        /// The broker's name has no address: the code of `getaddrinfo`.
        case lookUp(Int32)
        /// The system's `errno`.
        case system(Int32)
        /// TLS: certificates that can't be used or are not trusted, or what is spoken is not TLS.
        case tls
        /// There is no connection, or the broker has not taken it yet.
        case notConnected
        /// A connection is there already.
        case connected
        /// The packet is larger than the broker takes, or than MQTT can have it.
        case packetTooLarge
        /// A text has characters that MQTT does not take (control characters and noncharacters), or is longer than
        /// 65,535 bytes.
        case textInvalid
        /// A topic or a filter is empty, or has wildcards where there can be none.
        case topicInvalid
        /// Settings that can't be.
        case settingsInvalid
        /// Any other number of libmosquitto's (`mosq_err_t`).
        case library(Int32)
    }

    public let cause: Cause
    /// What else is known: a file, or what OpenSSL says.
    public let detail: String?

    public init(_ cause: Cause, _ detail: String? = nil) {
        self.cause = cause
        self.detail = detail
    }

    /// What the broker said, where it said something.
    public var reason: ReasonCode? {
        switch cause {
        case .refused(let reason), .ended(let reason): reason
        default: nil
        }
    }
}

/// In words for people, without a full stop.
extension MQTTError: CustomStringConvertible {
    public var description: String {
        let words = cause.words
        guard let detail else { return words }
        return "\(words): \(detail)"
    }
}

extension MQTTError.Cause {
    fileprivate var words: String {
        switch self {
        case .refused(let reason): "the broker refused the connection: \(reason)"
        case .ended(let reason): "the broker ended the connection: \(reason)"
        case .connectionLost: "the connection was lost"
        case .noAnswer: "the broker does not answer"
        case .lookUp(let code): "the broker's name has no address: \(String(cString: gai_strerror(code)))"
        case .system(let code): String(cString: strerror(code))
        case .tls: "TLS failed"
        case .notConnected: "there is no connection to the broker"
        case .connected: "there is a connection to the broker already"
        case .packetTooLarge: ReasonCode.packetTooLarge.description
        case .textInvalid: "a text can't be sent with MQTT"
        case .topicInvalid: "the topic is not valid"
        case .settingsInvalid: "the settings are not valid"
        case .library(let code): Self.sentence(of: code)
        }
    }

    /// libmosquitto ends its sentences with a full stop, here and there.
    private static func sentence(of code: Int32) -> String {
        var text = String(cString: mosquitto_strerror(code))
        while text.last == "." { text.removeLast() }
        return text
    }
}

extension MQTTError {
    /// - Parameters:
    ///   - code: what a function of libmosquitto returned.
    ///   - failure: `errno` just after that.
    ///   - detail: what it logged meanwhile.
    init(_ code: Int32, errno failure: Int32, detail: String? = nil) {
        let cause: Cause =
            switch mosq_err_t(code) {
            // What OpenSSL finds wrong comes as one of these, and in the log.
            case MOSQ_ERR_CONN_LOST: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_ERRNO where failure == EPROTO: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_KEEPALIVE: .noAnswer
            case MOSQ_ERR_NO_CONN: .notConnected
            case MOSQ_ERR_EAI: .lookUp(failure)
            // It has lost the number: no failure is "Success".
            case MOSQ_ERR_ERRNO where failure == 0 || failure == EPIPE: .connectionLost
            case MOSQ_ERR_ERRNO: .system(failure)
            case MOSQ_ERR_TLS, MOSQ_ERR_TLS_HANDSHAKE, MOSQ_ERR_OCSP: .tls
            case MOSQ_ERR_MALFORMED_UTF8: .textInvalid
            case MOSQ_ERR_OVERSIZE_PACKET, MOSQ_ERR_PAYLOAD_SIZE: .packetTooLarge
            case MOSQ_ERR_INVAL: .settingsInvalid
            default: .library(code)
            }
        self.init(cause, detail)
    }
}
