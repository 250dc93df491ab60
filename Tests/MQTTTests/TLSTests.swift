// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@Suite("TLS connections to a broker", .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"), .limited)
struct TLSTests {
    private let authority: CertificateAuthority
    private let loop = Loop()

    init() throws {
        authority = try CertificateAuthority()
    }

    @Test(
        "A broker with a valid certificate is trusted by name and by address, also after reconnections",
        arguments: ["localhost", "127.0.0.1"])
    func trusted(host: String) throws {
        let broker = try authority.broker()
        let party = try Party(broker, on: loop) {
            $0.use(authority)
            $0.host = host
            $0.sessionExpiry = 60
        }
        for round in 0..<3 {
            try party.connect()
            #expect(party.connections.last?.sessionPresent == (round > 0))
            try party.subscribe(TopicFilter("bells/#", excludesOwn: false, retainHandling: .never))
            try party.publish(Publication(topic: "bells/ding", payload: Array(repeating: 7, count: 300_000)))
            try party.waitForPublications(round + 1)
            #expect(party.received[round].payload.count == 300_000)
            #expect(loop.turn())
            if round == 1 {
                broker.kill()
                #expect(try party.waitForEnd().cause != .notConnected)
                try broker.restart()
                party.call { $0.disconnect() }
            }
            party.call { $0.disconnect() }
            #expect(loop.turn())
            guard round != 1 else { break }
        }
        #expect(!party.wasToldInCall)
    }

    @Test("A certificate of an untrusted authority is refused, and the error names the file of trusted authorities")
    func wrongAuthority() throws {
        let broker = try authority.broker()
        let other = try CertificateAuthority()
        let party = try Party(broker, on: loop) { $0.use(other) }
        let error = try party.failure()
        #expect(error.cause == .tls)
        let file = other.certificateFile
        #expect(
            "\(error)"
                == "TLS failed: certificate verify failed: the certificate of 127.0.0.1 is not signed by an authority in \(file), or is not valid now"
        )
        #expect(loop.turn())
        // A broker that is quick has it found out before the call returns.
        #expect(party.errors.isEmpty || party.errors == [error])
    }

    @Test("A broker whose certificate no authority of the system has signed is refused")
    func systemAuthorities() throws {
        let broker = try authority.broker()
        let party = try Party(broker, on: loop) { $0.tls = MQTTClient.TLS() }
        for _ in 0..<2 {
            let words = try party.failure().description
            #expect(
                words.hasPrefix("TLS failed: certificate verify failed: ") && words.contains("that the system trusts"))
        }
    }

    @Test("A certificate for another host is refused")
    func wrongHost() throws {
        let broker = try authority.broker(names: ["DNS:broker.example"])
        let party = try Party(broker, on: loop) {
            $0.use(authority)
            $0.host = "localhost"
        }
        let error = try party.failure()
        #expect(error.cause == .tls)
        #expect("\(error)" == "TLS failed: the certificate was issued for another host than localhost")
    }

    @Test("A broker that requires client certificates accepts a trusted one, and refuses a missing or a forged one")
    func clientCertificate() throws {
        let broker = try authority.broker(["require_certificate true", "use_identity_as_username true"])
        let identity = try authority.certify("atlas")
        let party = try Party(broker, on: loop) { $0.use(authority, identity) }
        try party.connect()
        try broker.waitForLog("u'atlas'")

        let without = try Party(broker, on: loop, "without") { $0.use(authority) }
        expectRefusal(try without.failure(), "certificate required")

        let other = try CertificateAuthority()
        let forged = try Party(broker, on: loop, "forged") { $0.use(authority, try other.certify("atlas")) }
        expectRefusal(try forged.failure(), "alert")
    }

    /// What the broker says to a certificate comes after a client has begun to talk, and is lost where the broker closes
    /// the connection before it has heard all.
    private func expectRefusal(_ error: MQTTError, _ words: String) {
        switch error.cause {
        case .tls: #expect("\(error)".contains(words))
        case .connectionLost: #expect("\(error)".contains("certificate"))
        default: #expect([.system(ECONNRESET), .system(EPIPE)].contains(error.cause), "\(error)")
        }
    }

    @Test("A TLS client can't connect to a plain port, nor a plain client to a TLS port")
    func noTLS() throws {
        let broker = try MosquittoBroker()
        let party = try Party(broker, on: loop) { $0.use(authority) }
        let error = try party.failure()
        #expect([.tls, .connectionLost, .system(ECONNRESET)].contains(error.cause), "\(error)")
        if error.cause == .tls, error.detail?.hasPrefix("unexpected") != true {
            #expect(error.detail?.hasSuffix(" does not speak TLS on port \(broker.port)") == true, "\(error)")
        }
        let secured = try authority.broker()
        let plain = try Party(secured, on: loop)
        let other = try plain.failure()
        #expect([.connectionLost, .system(ECONNRESET), .library(2)].contains(other.cause), "\(other)")
        #expect(loop.turn())
    }

    @Test(
        "A broker that ends the connection during the TLS handshake causes an error", arguments: [FakeBroker.Answer.end]
    )
    func ends(answer: FakeBroker.Answer) throws {
        let broker = try FakeBroker(answer)
        let party = try Party(port: broker.port, on: loop) { $0.use(authority) }
        let error = try party.failure()
        #expect([.tls, .connectionLost, .system(ECONNRESET)].contains(error.cause), "\(error)")
        #expect(loop.turn())
    }

    @Test("An error names the certificate or key file that is missing or invalid")
    func files() throws {
        func failure(_ tls: MQTTClient.TLS) throws -> MQTTError {
            try Party(port: 1, on: loop) { $0.tls = tls }.failure()
        }
        let missing = authority.directory.entry("missing")
        #expect(try failure(MQTTClient.TLS(authorityFile: missing)) == MQTTError(.system(ENOENT), missing))
        let identity = try authority.certify("atlas")
        let tls = MQTTClient.TLS(
            authorityFile: authority.certificateFile, certificateFile: identity.certificateFile, keyFile: missing)
        #expect(try failure(tls) == MQTTError(.system(ENOENT), missing))

        let broker = try authority.broker()
        let garbage = try authority.directory.write("no certificate\n", to: "garbage")
        let party = try Party(broker, on: loop) { $0.tls = MQTTClient.TLS(authorityFile: garbage) }
        #expect(try party.failure() == MQTTError(.tls, "\(garbage) has no certificates"))

        let other = try authority.certify("other")
        let mixed = try Party(broker, on: loop) {
            $0.use(authority, CertificateAuthority.Identity(identity.certificateFile, other.keyFile))
        }
        let error = try mixed.failure()
        #expect(error.cause == .tls && error.detail != nil, "\(error)")
    }
}

extension MQTTClient.Settings {
    /// Has the broker prove itself to an authority, and proves itself to the broker.
    mutating func use(_ authority: CertificateAuthority, _ identity: CertificateAuthority.Identity? = nil) {
        tls = MQTTClient.TLS(
            authorityFile: authority.certificateFile, certificateFile: identity?.certificateFile,
            keyFile: identity?.keyFile)
    }
}
