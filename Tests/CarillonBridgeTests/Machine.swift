// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport

/// A session with a service, a bridge of its own and the command: what stands for another machine.
final class Machine {
    let service: ServiceProcess
    /// Each is killed when nothing refers to it any more.
    private var bridges: [RunningCommand] = []

    init(bus: BusKind = .dbusDaemon) throws {
        service = try ServiceProcess(on: try PrivateBus(bus))
    }

    var environment: [String: String] { service.bus.environment }

    func configure(_ text: String) throws {
        let directory = try service.bus.directory.createSubdirectory("config/carillon")
        try text.write(toFile: directory + "/bridge.conf", atomically: true, encoding: .utf8)
    }

    func configure(broker: MosquittoBroker, host: String, exports: String = "", imports: String = "") throws {
        try configure(
            """
            [Broker]
            host=127.0.0.1
            port=\(broker.port)
            tls=false
            [Bridge]
            host=\(host)
            user=u
            export=\(exports)
            import=\(imports)
            """)
    }

    /// Starts a bridge.
    ///
    /// - Parameter logged: what is waited for in its log; nil for not.
    @discardableResult
    func startBridge(waitingFor logged: String? = "connected to") throws -> RunningCommand {
        let bridge = try RunningCommand(
            try Executables.path(of: "carillon-bridge"), ["--verbose"], environment: environment)
        bridges.append(bridge)
        if let logged { _ = try bridge.nextErrorLine { $0.contains(logged) } }
        return bridge
    }

    func run(_ arguments: String...) throws -> CommandResult {
        try Command.run(try Executables.path(of: "carillon"), arguments, environment: environment)
    }

    func observe(_ arguments: String...) throws -> RunningCommand {
        let observer = try RunningCommand(
            try Executables.path(of: "carillon"), ["observe"] + arguments, environment: environment)
        _ = try observer.nextErrorLine { $0.hasPrefix("observing") }
        return observer
    }

    /// What the bridge says of itself.
    func status() throws -> [String: Any] {
        let result = try run("bridge", "status", "--json")
        return try JSONSerialization.jsonObject(with: Data(result.standardOutput.utf8)) as? [String: Any] ?? [:]
    }

    /// Waits until the bridge has subscribed to so many filters.
    func waitForSubscriptions(_ count: Int) throws {
        try eventually("\(count) subscriptions", every: .milliseconds(50)) {
            try status()["subscriptions"] as? Int == count
        }
    }
}
