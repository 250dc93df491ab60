// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The error of a call of an ``MQTTClient``, or the reason for the end of a connection.
public struct MQTTError: Error, Equatable, Sendable {
    /// The cause, by which programs distinguish errors.
    public enum Cause: Hashable, Sendable {
        /// The broker refused the connection.
        case refused(ReasonCode)
        /// The broker ended the connection, and gave a reason.
        case ended(ReasonCode)
        /// The connection ended without a reason.
        case connectionLost
        /// The peer was silent for so long that the connection counts as lost, or the connection was not made in time.
        case noAnswer
        /// The broker's name has no address, or the lookup took too long. The value is the code of `getaddrinfo`.
        case lookUp(Int32)
        /// An error of the operating system; the value is its `errno`.
        case system(Int32)
        /// TLS failed: certificates are unusable or not trusted, or the peer does not speak TLS.
        case tls
        /// The call needs a connection, and there is none or the broker has not accepted it.
        case notConnected
        /// The call needs a client without a connection, and there is one.
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

    /// The cause of the error.
    public let cause: Cause
    /// Further information, as a text for people: a file, or an error of OpenSSL.
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

/// The error as a text for people, without a full stop.
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

    /// Returns libmosquitto's text for an error code, without the full stop that some of these texts have.
    private static func sentence(of code: Int32) -> String {
        var text = String(cString: mosquitto_strerror(code))
        while text.last == "." { text.removeLast() }
        return text
    }
}

extension MQTTError {
    /// Creates the error for a result of libmosquitto.
    ///
    /// - Parameters:
    ///   - code: the result of the function.
    ///   - failure: the value of `errno` just after it.
    ///   - detail: the problem that libmosquitto logged meanwhile; nil for none.
    init(_ code: Int32, errno failure: Int32, detail: String? = nil) {
        let cause: Cause =
            switch mosq_err_t(code) {
            // libmosquitto reports errors of OpenSSL as one of these two codes. A logged line distinguishes them from a
            // plain end of the connection.
            case MOSQ_ERR_CONN_LOST: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_ERRNO where failure == EPROTO: detail == nil ? .connectionLost : .tls
            case MOSQ_ERR_KEEPALIVE: .noAnswer
            case MOSQ_ERR_NO_CONN: .notConnected
            case MOSQ_ERR_EAI: .lookUp(failure)
            // libmosquitto does not keep `errno` in each case. The text for 0 would be "Success".
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
