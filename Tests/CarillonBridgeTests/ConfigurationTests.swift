// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonBridge

@Suite("G2: bridge.conf", .limited)
struct ConfigurationTests {
    private func read(_ text: String) throws -> BridgeConfiguration {
        let directory = try TemporaryDirectory()
        try directory.write(text, to: "bridge.conf")
        let file = try #require(try KeyFile(path: directory.entry("bridge.conf")))
        var configuration = BridgeConfiguration(standard: ())
        for entry in file.entries { try configuration.apply(entry, of: file) }
        return configuration
    }

    @Test("All files are read, and the value of the more important directory is in force")
    func files() throws {
        let directory = try TemporaryDirectory()
        for (place, text) in [
            ("user", "[Broker]\nhost=mine\n"), ("system", "[Broker]\nhost=ours\nport=4711\n[Bridge]\nexport=N\n"),
        ] {
            try FileManager.default.createDirectory(
                atPath: directory.entry("\(place)/carillon"), withIntermediateDirectories: true)
            try directory.write(text, to: "\(place)/carillon/bridge.conf")
        }
        let reading = BridgeConfiguration.Reading(directories: ["user", "none", "system"].map(directory.entry))
        let configuration = reading.configuration
        #expect(configuration.brokerHost == "mine" && configuration.port == 4711)
        #expect(configuration.exports.count == 1 && reading.faults.isEmpty)
        #expect(reading.files == ["system", "user"].map { directory.entry("\($0)/carillon/bridge.conf") })
    }

    @Test("G2: the end of a certificate is announced in days, from two weeks before")
    func certificates() {
        let day = 86_400
        #expect(FileRemarks.end(secondsLeft: 14 * day) == nil)
        #expect(FileRemarks.end(secondsLeft: 14 * day - 1) == "ends in 13 days")
        #expect(FileRemarks.end(secondsLeft: 2 * day) == "ends in 2 days")
        #expect(FileRemarks.end(secondsLeft: 2 * day - 1) == "ends in 1 day")
        #expect(FileRemarks.end(secondsLeft: day - 1) == "ends in less than a day")
        #expect(FileRemarks.end(secondsLeft: 1) == "ends in less than a day")
        #expect(FileRemarks.end(secondsLeft: 0) == "has ended" && FileRemarks.end(secondsLeft: -day) == "has ended")
    }

    @Test(
        "A broker host is a name or an address, and other texts are refused",
        arguments: ["mqtt://b", "b:8883", "mqtt://b:1883", "b/x", "a b"])
    func brokerHosts(host: String) throws {
        #expect(throws: KeyFile.Fault.self) { try read("[Broker]\nhost=\(host)\n") }
        for good in ["b", "b.example", "10.0.0.1", "fe80::1", "::1"] {
            #expect(try read("[Broker]\nhost=\(good)\n").brokerHost == good)
        }
    }

    @Test("Settings without effect cause warnings")
    func noEffect() throws {
        let directory = try TemporaryDirectory()
        let empty = try directory.write("\n", to: "password")
        func warnings(_ text: String) throws -> [String] { FileRemarks(try read("[Broker]\nhost=b\n" + text)).warnings }
        #expect(try warnings("[Bridge]\nexport=a.b\n") == [])
        #expect(try warnings("[Bridge]\nexport=a.*\ncbor=a.b;c.d\n") == ["cbor= has c.d, which export= lacks"])
        #expect(try warnings("tls=false\nca-file=/a\n[Bridge]\nexport=a.b\n")[0].hasPrefix("tls=false: "))
        chmod(empty, 0o600)
        #expect(
            try warnings("password-file=\(empty)\n[Bridge]\nexport=a.b\n") == [
                "password-file: there is no password in it"
            ])
    }

    @Test("A nonexistent group is reported once, and every other mistake separately")
    func once() {
        let reading = BridgeConfiguration.Reading(text: "[Brige]\nhost=a\nuser=b\n[Broker]\nport=0\nkeep-alive=0\n")
        #expect(reading.faults.map(\.line) == [2, 5, 6], "\(reading.faults)")
    }

    @Test(
        "A list with commas or white space between its names is refused with a hint to semicolons",
        arguments: [
            ("N.A, N.B", "a comma"), ("N.A,N.B", "a comma"), ("N.A N.B", "white space"), ("N.*\tN.B;M", "white space"),
        ])
    func separators(list: String, word: String) throws {
        for key in ["export", "import", "cbor"] {
            let fault = try #require(throws: KeyFile.Fault.self) { try read("[Bridge]\n\(key)=\(list)\n") }
            #expect(fault.reason.contains("for \(key) has \(word)") && fault.reason.contains("; separates names"))
        }
        #expect(try read("[Bridge]\nexport=Battery Changed; N.A Changed\n").exports.count == 2)
    }

    @Test("A certificate and a key are accepted only together, and only if they match")
    func ownCertificate() throws {
        let authority = try CertificateAuthority()
        let (one, other) = (try authority.certify("one"), try authority.certify("other"))
        let directory = try TemporaryDirectory()
        let garbage = try directory.write("garbage\n", to: "garbage")
        func faults(_ certificate: String?, _ key: String?, authorityFile: String? = nil) throws -> [String] {
            var text = "[Broker]\nhost=h\n"
            for (name, path) in [("certificate-file", certificate), ("key-file", key), ("ca-file", authorityFile)] {
                if let path { text += "\(name)=\(path)\n" }
            }
            return FileRemarks(try read(text)).faults
        }
        #expect(try faults(one.certificateFile, one.keyFile, authorityFile: authority.certificateFile) == [])
        #expect(try faults(one.certificateFile, nil) == ["certificate-file: there is no key-file for it"])
        #expect(try faults(nil, one.keyFile) == ["key-file: there is no certificate-file for it"])
        let mixed = try faults(one.certificateFile, other.keyFile)
        #expect(mixed == ["key-file: the key in \(other.keyFile) is not that of \(one.certificateFile)"])
        #expect(
            try faults(one.certificateFile, garbage).first?.hasPrefix("key-file: \(garbage) lacks a private key")
                == true)
        #expect(try faults(nil, nil, authorityFile: garbage) == ["ca-file: \(garbage) lacks a certificate (PEM)"])
        // It is there and can't be read: that is said once.
        #expect(try faults(directory.entry("none"), one.keyFile).count == 1)
    }

    @Test("G2: device topics are mapped to names, and mapped names outside of the lists cause remarks")
    func mappings() throws {
        let configuration = try read("[Map N.A]\nfrom=c/+\nto=\n[Map N.B]\nfrom=b\n")
        let rules = configuration.map.rules
        #expect(rules.map(\.name) == ["N.A", "N.B"] && rules.map { $0.source?.text } == ["c/+", "b"])
        #expect(rules.allSatisfy { $0.target == nil })
        #expect(configuration.mappingRemarks.count == 2 && configuration.mappingRemarks[0].contains("import="))
    }

    @Test(
        "G2: a mapping with an invalid name, topic or key is a mistake",
        arguments: [
            "[Map ]\nfrom=a", "[Map N.*]\nfrom=a", "[Map org.carillon.Bridge.Host]\nfrom=a", "[Map N]\nfrom=+/a",
            "[Map N]\nfrom=carillon/1/#", "[Map N]\nto=$SYS/a", "[Map N]\nat=a", "[Map]\nN=a",
        ])
    func badMapping(text: String) {
        #expect(throws: KeyFile.Fault.self) { try read(text + "\n") }
    }

    @Test("E9: a faulty file puts no mapping in force, and disables the mappings of the names that it has")
    func mappingBesideMistake() throws {
        let directory = try TemporaryDirectory()
        for (place, text) in [
            ("user", "[Map N.A]\nfrom=b\n[Limits]\nqueue=many\n"),
            ("system", "[Broker]\nhost=ours\n[Map N.A]\nfrom=a\n[Map N.B]\nfrom=c\n"),
        ] {
            try FileManager.default.createDirectory(
                atPath: directory.entry("\(place)/carillon"), withIntermediateDirectories: true)
            try directory.write(text, to: "\(place)/carillon/bridge.conf")
        }
        let reading = BridgeConfiguration.Reading(directories: ["user", "system"].map(directory.entry))
        #expect(reading.configuration.isOn && reading.configuration.map.rules.map(\.name) == ["N.B"])
    }

    private static let system = """
        [Broker]
        host=ours
        [Bridge]
        export=org.a.*;org.b.C;org.d
        import=*
        [Limits]
        queue=100
        in-flight=5
        """

    /// That of two files, of which the user's has a mistake.
    private func read(user text: String) throws -> BridgeConfiguration {
        let directory = try TemporaryDirectory()
        try directory.write(Self.system, to: "system")
        try directory.write(text, to: "user")
        let reading = BridgeConfiguration.Reading(paths: ["system", "user"].map(directory.entry))
        #expect(!reading.faults.isEmpty && reading.faults.allSatisfy { $0.path == directory.entry("user") })
        return reading.configuration
    }

    @Test("E9: only the restrictions of a faulty file are in force")
    func restricting() throws {
        let configuration = try read(
            user: """
                [Bridge]
                export=org.a.b.*;org.b.*;org.e
                import=org.f;org.g.*
                presence=false
                [Limits]
                queue=7
                in-flight=6
                receive-maximum=x
                """)
        #expect(configuration.isOn && configuration.brokerHost == "ours")
        #expect(Set(configuration.exports.map(\.description)) == ["org.b.C", "org.a.b.*"])
        #expect(configuration.imports.map(\.description) == ["org.f", "org.g.*"])
        #expect(!configuration.followsPresence && configuration.queue.count == 7 && configuration.inFlight == 5)
        #expect(configuration.receiveMaximum == BridgeConfiguration(standard: ()).receiveMaximum)
    }

    @Test(
        "E9: a mistake in a file that may set the broker or the bridge's identity switches the bridge off",
        arguments: [
            "[Broker]\nhost=mine\n[Bridge]\nx=1", "[Broker]\ntls=false\n[Bridge]\nx=1", "[Broker]\nhots=mine",
            "[Bridge]\nrealm=other\n[Limits]\nqueue=0", "[Bridge]\nhost=a\n[Limits]\nqueue=0",
            "[Bridge]\nuser=a\n[Limits]\nqueue=0", "[Bridge]\nraelm=other", "[Bridge]\nexport",
            "[Brigde]\nexport=a", "host=mine", "[Broker\nhost=mine", "[Bridge]\nexport=\u{0}", "[Limits]\n\u{0}",
        ])
    func off(text: String) throws {
        #expect(try !read(user: text).isOn)
    }

    @Test(
        "E9: a mistake that can't concern the broker or the identity leaves the bridge on",
        arguments: ["[Limits]\nqueue=0", "[Bridge]\ncbor=a*b", "[Bridge]\npresence=no", "[Limits]\nqueue=\u{0}"])
    func on(text: String) throws {
        let configuration = try read(user: text)
        #expect(configuration.isOn && configuration.exports.count == 3)
        #expect(configuration.followsPresence == !text.contains("presence"))
    }

    @Test("E9: a faulty file that disables the bridge does so even beside a more important file without mistakes")
    func staysOff() throws {
        let directory = try TemporaryDirectory()
        for (name, text) in [
            ("system", Self.system), ("mid", "x=1\n[Broker]\ntls=true\n"), ("user", "[Broker]\nhost=mine\n"),
        ] { try directory.write(text, to: name) }
        let reading = BridgeConfiguration.Reading(paths: ["system", "mid", "user"].map(directory.entry))
        #expect(!reading.configuration.isOn && reading.faults.count == 1)
    }

    @Test("E9: a list with a mistake in its value is empty")
    func faultyList() throws {
        let configuration = try read(user: "[Bridge]\nexport=a*b")
        #expect(configuration.isOn && configuration.exports.isEmpty && configuration.imports.count == 1)
    }

    @Test("Without a broker the bridge is off, and its lists are empty")
    func standard() throws {
        let configuration = BridgeConfiguration(standard: ())
        #expect(!configuration.isOn && configuration.exports.isEmpty && configuration.imports.isEmpty)
        #expect(configuration.port == 8883 && configuration.tls != nil)
        #expect(!configuration.origin.host.isEmpty && !configuration.origin.host.contains("."))
        #expect(try configuration.password() == nil)
    }

    @Test("The default host is the machine's name up to the first dot, also for an empty host")
    func hostOfThisMachine() throws {
        var bytes = [UInt8](repeating: 0, count: 256)
        let result = bytes.withUnsafeMutableBytes { bytes in
            gethostname(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), bytes.count - 1)
        }
        try #require(result == 0)
        let name = String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self).prefix { $0 != "." }
        let expected = name.isEmpty ? "localhost" : String(name)
        #expect(BridgeConfiguration(standard: ()).origin.host == expected)
        #expect(try read("[Bridge]\nhost=\n").origin.host == expected)
    }

    @Test("The sample file has every key with its default")
    func sample() throws {
        let text = try String(contentsOfFile: Executables.packageRoot + "/data/bridge.conf", encoding: .utf8)
        let lines = text.split(separator: "\n").compactMap { line -> String? in
            if line.hasPrefix("[") { return String(line) }
            // The port depends on another key.
            guard let key = line.wholeMatch(of: #/#([a-z-]+=.*)/#), !key.1.hasPrefix("port=") else { return nil }
            return String(key.1)
        }
        #expect(lines.count == 24 + 1)
        #expect(try read(lines.joined(separator: "\n")) == BridgeConfiguration(standard: ()))
    }

    @Test("Every key is read")
    func keys() throws {
        let directory = try TemporaryDirectory()
        try directory.write("secret\nmore", to: "password")
        let configuration = try read(
            """
            [Broker]
            host=broker.example.org
            tls=false
            user-name=me
            password-file=\(directory.entry("password"))
            keep-alive=30
            session-expiry=0
            [Bridge]
            realm=a/b
            host=desk
            user=anna
            export=a.b;c.*
            import=*
            cbor=c.d
            presence=false
            absence-expiry=7
            [Limits]
            queue=5
            queue-bytes=6
            in-flight=7
            receive-maximum=8
            subscriptions=10
            """)
        #expect(configuration.isOn && configuration.port == 1883 && configuration.tls == nil)
        #expect(try configuration.userName == "me" && configuration.password() == "secret")
        #expect(configuration.keepAlive == 30 && configuration.sessionExpiry == 0 && configuration.realm == "a/b")
        #expect(configuration.origin == Origin(host: "desk", user: "anna"))
        #expect(configuration.exports.map(\.description) == ["a.b", "c.*"])
        #expect(
            configuration.imports.map(\.description) == ["*"] && configuration.binaryNames.map(\.description) == ["c.d"]
        )
        #expect(!configuration.followsPresence && configuration.absenceExpiry == 7)
        #expect(configuration.queue == .init(count: 5, byteCount: 6) && configuration.maxSubscriptions == 10)
        #expect(configuration.inFlight == 7 && configuration.receiveMaximum == 8)
        let secured = try read("[Broker]\nhost=h\nca-file=/a\ncertificate-file=/b\nkey-file=/c\nport=7\n")
        #expect(secured.tls == .init(authorityFile: "/a", certificateFile: "/b", keyFile: "/c") && secured.port == 7)
    }

    @Test(
        "A mistake in the configuration is reported with its line",
        arguments: [
            ("[Brokers]\nhost=a", "there is no group [Brokers]"),
            ("[Broker]\nhosts=a", "there is no key 'hosts' in [Broker]"),
            ("[Broker]\nport=0", "'0' is not a number from 1 to 65535 for port"),
            ("[Broker]\ntls=yes", "'yes' is neither true nor false for tls"),
            ("[Broker]\nca-file=a.pem", "'a.pem' does not begin with / or ~/"),
            ("[Broker]\nkeep-alive=4", "'4' is not a number from 5"), ("[Bridge]\nrealm=", "realm has 1 to 255 bytes"),
            ("[Bridge]\nexport=a*b", "'a*b' for export is neither a name nor a prefix"),
            ("[Limits]\nqueue=0", "'0' is not a number from 1 to 1000000 for queue"),
        ])
    func mistakes(text: String, reason: String) {
        let fault = #expect(throws: KeyFile.Fault.self) { try read(text) }
        #expect(fault?.description.contains(reason) == true, "\(String(describing: fault))")
        #expect(fault?.line == 2 || fault?.line == 1)
    }
}
