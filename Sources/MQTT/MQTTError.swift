// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The error of a call, or of a connection.
public struct MQTTError: Error, Equatable, Sendable {
    public enum Cause: Hashable, Sendable {
        /// The broker refused the connection.
        case refused(ReasonCode)
        /// The broker ended the connection, and gave a reason.
        case ended(ReasonCode)
        /// The connection ended without a reason.
        case connectionLost
        /// The peer was silent for so long that the connection counts as lost, or the connection was not made in time.
        case noAnswer
        /// The broker's name has no address. The code of `getaddrinfo`.
        case lookUp(Int32)
        /// The system's `errno`.
        case system(Int32)
        /// TLS failed: certificates are unusable or not trusted, or the peer does not speak TLS.
        case tls
        /// There is no connection, or the broker has not accepted it.
        case notConnected
        /// A connection is there already.
        case connected
        /// The packet is larger than the broker accepts, or than MQTT allows.
        case packetTooLarge
        /// A text contains characters that MQTT does not accept (control characters and noncharacters), or is longer
        /// than 65,535 bytes.
        case textInvalid
        /// A topic or a filter is empty, or has wildcards where none are allowed.
        case topicInvalid
        /// The settings are invalid.
        case settingsInvalid
        /// Any other error code of libmosquitto (`mosq_err_t`).
        case library(Int32)
    }

    public let cause: Cause
    /// Further information: a file, or an error text of OpenSSL.
    public let detail: String?

    public init(_ cause: Cause, _ detail: String? = nil) {
        self.cause = cause
        self.detail = detail
    }

    /// The reason that the broker gave; nil for none.
    public var reason: ReasonCode? {
        switch cause {
        case .refused(let reason), .ended(let reason): reason
        default: nil
        }
    }
}

/// The text for people, without a full stop.
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

    /// libmosquitto ends some of its sentences with a full stop.
    private static func sentence(of code: Int32) -> String {
        var text = String(cString: mosquitto_strerror(code))
        while text.last == "." { text.removeLast() }
        return text
    }
}

extension MQTTError {
    /// - Parameters:
    ///   - code: the result of a function of libmosquitto.
    ///   - failure: the value of `errno` just after it.
    ///   - detail: the problem that libmosquitto logged meanwhile.
    init(_ code: Int32, errno failure: Int32, detail: String? = nil) {
        let cause: Cause =
            switch mosq_err_t(code) {
            // Errors of OpenSSL arrive as one of these codes, and in the log.
            case MOSQ_ERR_CONN_LOST: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_ERRNO where failure == EPROTO: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_KEEPALIVE: .noAnswer
            case MOSQ_ERR_NO_CONN: .notConnected
            case MOSQ_ERR_EAI: .lookUp(failure)
            // libmosquitto has lost the number: a failure must not be called "Success".
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
