// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Who vouches for brokers and their clients in one test: certificates and keys that `openssl` makes in a directory of its
/// own.
public final class CertificateAuthority: Sendable {
    /// A certificate and its key, as paths.
    public struct Identity: Sendable {
        public let certificateFile: String
        public let keyFile: String

        public init(_ certificateFile: String, _ keyFile: String) {
            self.certificateFile = certificateFile
            self.keyFile = keyFile
        }
    }

    /// With all certificates; a ``MosquittoBroker`` may be given it.
    public let directory: TemporaryDirectory
    /// The authority's own certificate.
    public let certificateFile: String

    public init() throws {
        directory = try TemporaryDirectory()
        certificateFile = directory.entry("authority.crt")
        try Self.openssl(
            ["req", "-x509", "-days", "2", "-subj", "/CN=authority", "-out", certificateFile]
                + Self.newKey(directory.entry("authority.key")))
    }

    /// Certifies a name.
    ///
    /// - Parameters:
    ///   - name: the certificate's common name, which mosquitto can take as a client's user name.
    ///   - alternatives: what it is for besides, as `DNS:localhost` or `IP:127.0.0.1`.
    public func certify(_ name: String, _ alternatives: [String] = []) throws -> Identity {
        let identity = Identity(directory.entry("\(name).crt"), directory.entry("\(name).key"))
        let request = directory.entry("\(name).csr")
        try Self.openssl(["req", "-subj", "/CN=\(name)", "-out", request] + Self.newKey(identity.keyFile))
        var extensions: [String] = []
        if !alternatives.isEmpty {
            let text = "subjectAltName=\(alternatives.joined(separator: ","))\n"
            extensions = ["-extfile", try directory.write(text, to: "\(name).ext")]
        }
        try Self.openssl(
            [
                "x509", "-req", "-days", "2", "-in", request, "-CA", certificateFile, "-CAkey",
                directory.entry("authority.key"), "-CAcreateserial", "-out", identity.certificateFile,
            ] + extensions)
        return identity
    }

    /// A broker that proves by it to be `localhost` and 127.0.0.1.
    ///
    /// - Parameters:
    ///   - lines: further ones of its configuration, such as `require_certificate true`.
    ///   - names: what else it proves to be, instead.
    public func broker(
        _ lines: [String] = [], names: [String] = ["DNS:localhost", "IP:127.0.0.1"], keepsState: Bool = false
    ) throws -> MosquittoBroker {
        let identity = try certify("broker", names)
        let files = [
            "cafile \(certificateFile)", "certfile \(identity.certificateFile)", "keyfile \(identity.keyFile)",
        ]
        return try MosquittoBroker(files + lines, keepsState: keepsState)
    }

    /// Elliptic curves: keys of RSA take a second each.
    private static func newKey(_ path: String) -> [String] {
        ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]
    }

    private static func openssl(_ arguments: [String]) throws {
        let result = try Command.run("openssl", arguments)
        guard result.exitCode == 0 else { throw NotInTime("openssl: \(result)") }
    }
}
