// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A bus in the place of the machine's system bus, with the rules that dbus-daemon comes with for that: users meet there,
/// nobody owns a name, and nobody calls anybody but the bus. It can end and come back at the same address.
public final class SystemBus {
    public let kind: BusKind
    public let directory: TemporaryDirectory
    public let address: String
    private let environment: [String: String]
    private var process: RunningCommand?
    private var controller: BrokerController?

    /// The rules of the distribution.
    private static let distribution = "/usr/share/dbus-1/system.conf"

    public init(_ kind: BusKind = .dbusDaemon) throws {
        self.kind = kind
        directory = try TemporaryDirectory()
        // All users have to reach the socket.
        chmod(directory.path, 0o755)
        address = "unix:path=\(directory.entry("bus"))"
        environment = try PrivateBus.makeEnvironment(in: directory)
        if kind == .dbusDaemon { try writeConfiguration() }
        try start()
    }

    deinit {
        stop()
    }

    /// The same rules with a socket of its own, without another user, files of its own, and services to start.
    private func writeConfiguration() throws {
        var text = try String(contentsOfFile: Self.distribution, encoding: .utf8)
        for element in ["user", "servicehelper", "pidfile", "listen", "includedir"] {
            text.replace(try Regex("(?m)^ *<\(element)>.*</\(element)>"), with: "")
        }
        for element in ["fork", "syslog", "standard_system_servicedirs"] { text.replace("<\(element)/>", with: "") }
        text.replace(try Regex("<include [^>]*>.*</include>"), with: "")
        text.replace("<auth>EXTERNAL</auth>", with: "<auth>EXTERNAL</auth><listen>\(address)</listen>")
        try directory.write(text, to: "bus.conf")
    }

    /// Begins again, at the same address.
    public func start() throws {
        switch kind {
        case .dbusDaemon: process = try PrivateBus.startDaemon(directory, [], environment).0
        case .dbusBroker:
            let broker = try PrivateBus.startBroker(directory.entry("bus"), [], environment, isSystemBus: true)
            (process, controller) = (broker.0, broker.1)
        }
    }

    /// Ends it and waits until it is gone.
    public func stop() {
        guard let process else { return }
        process.terminate()
        if process.exit(within: PrivateBus.ending) == nil {
            process.kill()
            _ = try? process.waitForExit()
        }
        (self.process, controller) = (nil, nil)
        unlink(directory.entry("bus"))
    }

    public var log: String { process?.standardError ?? "" }
}
