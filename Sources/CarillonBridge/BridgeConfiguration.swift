// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The configuration of the bridge, from the files `carillon/bridge.conf` in the XDG configuration directories.
/// carillon-bridge(1) describes the keys.
///
/// Each file may set any of the keys; the user's own file takes precedence over the system's. A file with a fault can
/// only restrict the result (``restrict(by:)``).
package struct BridgeConfiguration: Equatable, KeyFileConfiguration {
    /// The files of TLS, in PEM format; nil for a key that is not set.
    struct Security: Equatable {
        /// The certificates of the authorities that vouch for the broker; nil for the system's certificates.
        var authorityFile: String?
        var certificateFile: String?
        var keyFile: String?
    }

    /// The host name or address of the broker; empty while the bridge is off.
    var brokerHost = ""
    /// The configured port; nil for the default, which depends on TLS.
    private var givenPort: UInt16?
    private var usesTLS = true
    /// The configured files, which are used only with TLS.
    private var security = Security()
    /// The user name at the broker; nil for none.
    var userName: String?
    /// The file whose first line is the password at the broker; nil for no password.
    private var passwordFile: String?
    /// The keep-alive interval, in seconds.
    var keepAlive: UInt16 = 60
    /// The time for which the broker keeps the session of a disconnected bridge, in seconds.
    var sessionExpiry: UInt32 = 86_400

    /// The realm: the group of hosts that exchange notifications. It is a level of each topic.
    var realm = "home"
    /// The machine name under which this session appears to other hosts.
    private var host = Self.hostName
    /// The user name under which this session appears to other hosts.
    private var user = Self.userName
    /// The names that the bridge publishes.
    var exports: [NamePattern] = []
    /// The names that the bridge accepts from other hosts.
    var imports: [NamePattern] = []
    /// The exported names whose payloads are CBOR instead of JSON, so that integers keep their widths.
    var binaryNames: [NamePattern] = []
    /// The mapping between topics of devices and names (`[Map NAME]`).
    var map = TopicMap()
    /// Whether the bridge observes which other hosts are online, and announces that to the session.
    var followsPresence = true
    /// The time for which a host may be absent before its retained values are removed from this session, in seconds; 0
    /// for no limit.
    var absenceExpiry: UInt32 = 30 * 86_400

    /// The limits of the queue of messages for the broker.
    var queue = ExportQueue.Limits()
    /// The maximum number of unacknowledged messages to the broker.
    var inFlight: UInt16 = 20
    /// The maximum number of unacknowledged messages from the broker.
    var receiveMaximum: UInt16 = 64
    /// The maximum number of subscriptions at the broker; each name takes two.
    var maxSubscriptions = 4096

    /// Whether a broker is configured, so that the bridge runs.
    package var isOn: Bool { !brokerHost.isEmpty && !isForbidden }
    /// Whether a file with a fault keeps the bridge off, also if a file with higher precedence sets a broker.
    private var isForbidden = false
    /// The host and port of the broker, for people.
    var brokerText: String { "\(brokerHost):\(port)" }
    /// The configured port, or the default of MQTT.
    var port: UInt16 { givenPort ?? (usesTLS ? 8883 : 1883) }
    /// Nil for an unencrypted connection.
    var tls: Security? { usesTLS ? security : nil }
    /// The host and user under which this session publishes. Configured texts were checked when they were read, and the
    /// system's names are short enough.
    var origin: Origin { Origin(host: host, user: user)! }

    /// The configuration as read from all files, with their faults.
    package typealias Reading = KeyFileReading<BridgeConfiguration>

    /// The path of the file, relative to each configuration directory.
    package static let path = "carillon/bridge.conf"

    /// Applies a file with a fault only so far as it restricts (E9).
    ///
    /// - Lists of names are intersected, and limits are lowered.
    /// - The bridge is off if the file sets any key of `[Broker]`, the realm or the origin, because the intended value
    ///   is unknown.
    /// - The bridge is also off if a line can't be parsed, or its group or key is unknown, because such a line may
    ///   stand for any key.
    /// - An unknown key of `[Limits]` is ignored, because this group has only limits, and those of the other files
    ///   still apply. A limit with an invalid or higher value is ignored as well.
    /// - The keys `cbor` and `absence-expiry`, and `presence=true`, are ignored, because they restrict nothing.
    package mutating func restrict(by file: KeyFile) {
        if file.hasUnknownEntries { isForbidden = true }
        for entry in file.entries {
            // The file may be meant to change the mapping of this name, so the name has none.
            if let name = Self.mappedName(entry.group) {
                map.remove(name)
                continue
            }
            let keys = Self.groups[entry.group, default: []]
            let known = keys.first { $0.name == entry.key }?.key
            switch known {
            case .exports: exports = NamePattern.common(of: exports, and: (try? NamePattern.list(entry.value)) ?? [])
            case .imports: imports = NamePattern.common(of: imports, and: (try? NamePattern.list(entry.value)) ?? [])
            case .presence where entry.value != "true": followsPresence = false
            case .presence, .binaryNames, .absenceExpiry: break
            case .queue, .queueBytes, .inFlight, .receiveMaximum, .subscriptions:
                // A copy takes the entry; the lower of both limits applies.
                var other = self
                guard (try? other.apply(entry, of: file)) != nil else { break }
                queue.count = min(queue.count, other.queue.count)
                queue.byteCount = min(queue.byteCount, other.queue.byteCount)
                inFlight = min(inFlight, other.inFlight)
                receiveMaximum = min(receiveMaximum, other.receiveMaximum)
                maxSubscriptions = min(maxSubscriptions, other.maxSubscriptions)
            case nil where entry.group == "Limits": break
            default: isForbidden = true
            }
        }
    }

    /// The configuration of a machine without files.
    package static var standard: BridgeConfiguration { BridgeConfiguration(standard: ()) }

    /// Creates the configuration of a machine without files.
    init(standard: Void) {}

    /// The machine's name without its domain.
    private static var hostName: String {
        var bytes = [UInt8](repeating: 0, count: 256)
        let length = bytes.withUnsafeMutableBytes { bytes in
            gethostname(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), bytes.count - 1)
        }
        let name =
            length == 0 ? String(decoding: bytes.prefix { $0 != 0 && $0 != UInt8(ascii: ".") }, as: UTF8.self) : ""
        return name.isEmpty ? "localhost" : name
    }

    /// The login name of this user; the user ID if there is none.
    private static var userName: String {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name, name.pointee != 0 else {
            return String(getuid())
        }
        return String(cString: name)
    }

    // MARK: Reading

    /// The keys of the groups [Broker], [Bridge] and [Limits].
    private enum Key {
        case host, port, tls, authorityFile, certificateFile, keyFile, userName, passwordFile, keepAlive, sessionExpiry
        case realm, originHost, user, exports, imports, binaryNames, presence, absenceExpiry
        case queue, queueBytes, inFlight, receiveMaximum, subscriptions
    }

    /// The groups, each with the names of its keys.
    private static let groups: [String: [(name: String, key: Key)]] = [
        "Broker": [
            ("host", .host), ("port", .port), ("tls", .tls), ("ca-file", .authorityFile),
            ("certificate-file", .certificateFile), ("key-file", .keyFile), ("user-name", .userName),
            ("password-file", .passwordFile), ("keep-alive", .keepAlive), ("session-expiry", .sessionExpiry),
        ],
        "Bridge": [
            ("realm", .realm), ("host", .originHost), ("user", .user), ("export", .exports), ("import", .imports),
            ("cbor", .binaryNames), ("presence", .presence), ("absence-expiry", .absenceExpiry),
        ],
        "Limits": [
            ("queue", .queue), ("queue-bytes", .queueBytes), ("in-flight", .inFlight),
            ("receive-maximum", .receiveMaximum), ("subscriptions", .subscriptions),
        ],
    ]

    /// Applies one entry of a file.
    ///
    /// - Throws: the fault in the entry.
    package mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        if let name = Self.mappedName(entry.group) { return try applyMapping(entry, name, of: file) }
        if entry.group.hasPrefix("Map ") {
            throw file.fault(entry, "'\(entry.group.dropFirst(4))' is not a name that topics can be mapped to")
        }
        guard let group = Self.groups[entry.group] else {
            throw file.fault(
                entry, "there is no group [\(entry.group)], only [Broker], [Bridge], [Map NAME] and [Limits]")
        }
        guard let key = group.first(where: { $0.name == entry.key })?.key else {
            let known = group.map(\.name).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: \(known)")
        }
        switch key {
        case .host: brokerHost = try host(entry, of: file)
        case .port: givenPort = try file.number(entry, 1...UInt16.max)
        case .tls: usesTLS = try file.boolean(entry)
        case .authorityFile: security.authorityFile = try path(entry, of: file)
        case .certificateFile: security.certificateFile = try path(entry, of: file)
        case .keyFile: security.keyFile = try path(entry, of: file)
        case .userName: userName = entry.value.isEmpty ? nil : entry.value
        case .passwordFile: passwordFile = try path(entry, of: file)
        case .keepAlive: keepAlive = try file.number(entry, 5...UInt16.max)
        case .sessionExpiry: sessionExpiry = try file.number(entry, 0...UInt32.max)
        case .realm: realm = try text(entry, of: file)
        case .originHost: host = entry.value.isEmpty ? Self.hostName : try text(entry, of: file)
        case .user: user = entry.value.isEmpty ? Self.userName : try text(entry, of: file)
        case .exports: exports = try names(entry, of: file)
        case .imports: imports = try names(entry, of: file)
        case .binaryNames: binaryNames = try names(entry, of: file)
        case .presence: followsPresence = try file.boolean(entry)
        case .absenceExpiry: absenceExpiry = try file.number(entry, 0...UInt32.max)
        case .queue: queue.count = try file.number(entry, 1...1_000_000)
        case .queueBytes: queue.byteCount = try file.number(entry, 1...1 << 30)
        case .inFlight: inFlight = try file.number(entry, 1...UInt16.max)
        case .receiveMaximum: receiveMaximum = try file.number(entry, 1...UInt16.max)
        case .subscriptions: maxSubscriptions = try file.number(entry, 2...100_000)
        }
    }

    /// Returns the name in the header of a group `[Map NAME]`; nil for other groups, and for a name that can't be
    /// mapped.
    private static func mappedName(_ group: String) -> String? {
        guard group.hasPrefix("Map ") else { return nil }
        let name = String(group.dropFirst(4))
        let parts = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        let isName =
            parts.allSatisfy { !$0.isEmpty } && !name.utf8.contains(UInt8(ascii: "*")) && !name.hasPrefix(" ")
            && BridgeTopic.isPossible(name: name) && !WantedNames.ownNames.matches(name)
        return isName ? name : nil
    }

    /// Applies an entry of a group `[Map NAME]`.
    private mutating func applyMapping(
        _ entry: KeyFile.Entry, _ name: String, of file: KeyFile
    ) throws(KeyFile.Fault) {
        let pattern: TopicPattern?
        do throws(TopicPattern.Malformed) {
            pattern = entry.value.isEmpty ? nil : try TopicPattern(entry.value)
        } catch {
            throw file.fault(entry, "'\(entry.value)' \(error.reason)")
        }
        switch entry.key {
        case "from": map.change(name) { $0.source = pattern }
        case "to":
            guard pattern?.root.hasPrefix("$") != true else {
                throw file.fault(entry, "'\(entry.value)' is a topic that only the broker publishes")
            }
            map.change(name) { $0.target = pattern }
        default:
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: from, to")
        }
    }

    /// Warnings about mappings that have no effect.
    var mappingRemarks: [String] {
        map.rules.compactMap { rule in
            if map.isShadowed(rule) {
                return "[Map \(rule.name)] imports nothing from \(rule.source!.text): another [Map] has the same topics"
            }
            let isIn = rule.source == nil || WantedNames.mayImport(rule.name, imports)
            let isOut = rule.target == nil || exports.contains { $0.matches(rule.name) }
            return switch (isIn, isOut) {
            case (true, true): nil
            case (false, _): "[Map \(rule.name)] imports nothing from \(rule.source!.text): import= lacks the name"
            case (true, false): "[Map \(rule.name)] publishes nothing on \(rule.target!.text): export= lacks the name"
            }
        }
    }

    /// Warnings about entries of `cbor` that have no effect.
    var listRemarks: [String] {
        binaryNames.filter { NamePattern.common(of: exports, and: [$0]).isEmpty }.map {
            "cbor= has \($0.description), which export= lacks"
        }
    }

    /// Whether certificate files are named although TLS is off.
    var hasUnusedCertificates: Bool { !usesTLS && security != Security() }

    /// Reads an absolute path, or a path in the user's home directory.
    private func path(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> String? {
        guard !entry.value.isEmpty else { return nil }
        for prefix in ["~/", "%h/"] where entry.value.hasPrefix(prefix) {
            return Self.homeDirectory + "/" + entry.value.dropFirst(prefix.count)
        }
        guard entry.value.hasPrefix("/") else {
            throw file.fault(
                entry, "'\(entry.value)' does not begin with / or ~/, as a path for \(entry.key) must")
        }
        return entry.value
    }

    /// The user's home directory, from the environment or the user database.
    private static var homeDirectory: String {
        if let home = getenv("HOME"), home.pointee == CChar(bitPattern: UInt8(ascii: "/")) {
            return String(cString: home)
        }
        return getpwuid(getuid())?.pointee.pw_dir.map { String(cString: $0) } ?? "/"
    }

    /// Reads a host name or an address without a port.
    private func host(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> String {
        // An IPv6 address has more than one colon.
        let colons = entry.value.utf8.count { $0 == UInt8(ascii: ":") }
        guard colons != 1, !entry.value.contains(where: { $0 == "/" || $0.isWhitespace }) else {
            throw file.fault(
                entry, "'\(entry.value)' is not a plain name or address: the port is another key, and there is no ://")
        }
        return entry.value
    }

    /// Reads a host, user or realm: a text that fits into one level of a topic.
    private func text(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> String {
        guard Origin(host: entry.value, user: "-") != nil else {
            throw file.fault(
                entry, "\(entry.key) has 1 to \(OutsideOrigin.maxBytes) bytes, not \(entry.value.utf8.count)")
        }
        return entry.value
    }

    /// Reads a list of names and prefixes.
    private func names(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> [NamePattern] {
        do throws(NamePattern.Malformed) {
            return try NamePattern.list(entry.value)
        } catch {
            throw file.fault(entry, error.reason(for: entry.key))
        }
    }

    /// A file that the configuration names: a password, a certificate or a key.
    struct NamedFile {
        /// The configuration key that names the file.
        enum Key: String, CustomStringConvertible {
            case passwordFile = "password-file"
            case authorityFile = "ca-file"
            case certificateFile = "certificate-file"
            case keyFile = "key-file"

            var description: String { rawValue }
        }

        let key: Key
        let path: String

        /// Returns the contents of the file, at most 1 MiB; nil if there is no such file.
        func contents() throws(FileError) -> [UInt8]? { try RegularFile.contents(of: path, atMost: 1 << 20) }
    }

    /// The files that the configuration names and uses; without TLS no certificates.
    var namedFiles: [NamedFile] {
        let files: [(NamedFile.Key, String?)] = [
            (.passwordFile, passwordFile), (.authorityFile, tls?.authorityFile),
            (.certificateFile, tls?.certificateFile), (.keyFile, tls?.keyFile),
        ]
        return files.compactMap { key, path in path.map { NamedFile(key: key, path: $0) } }
    }

    /// Returns a hash of the contents of all named files, by which a reload notices a change. A file that can't be read
    /// counts as empty. The hash differs between processes.
    func fileDigest() -> Int {
        var hasher = Hasher()
        for file in namedFiles { hasher.combine(try? file.contents()) }
        return hasher.finalize()
    }

    /// Returns the password, the first line of a file of its own.
    ///
    /// - Returns: nil if no file is configured.
    /// - Throws: the reason why the file can't be read.
    func password() throws(FileError) -> String? {
        guard let passwordFile else { return nil }
        guard let bytes = try RegularFile.contents(of: passwordFile, atMost: 65_536) else {
            throw FileError(operation: "reading \(passwordFile)", reason: .system(ENOENT))
        }
        return String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }, as: UTF8.self)
    }
}
