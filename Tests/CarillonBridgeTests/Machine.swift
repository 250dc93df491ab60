// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// A session with a service, a bridge of its own and the command: what stands for another machine.
final class Machine {
    let service: ServiceProcess
    /// Each is killed when nothing refers to it any more.
    private var bridges: [RunningCommand] = []
    /// What the bridge connects to, and as whom, since it was configured with one.
    private var broker: (broker: MosquittoBroker, host: String)?

    /// - Parameter limits: what the service's configuration says; nil for no file.
    init(bus: BusKind = .dbusDaemon, limits: String? = nil) throws {
        let bus = try PrivateBus(bus)
        if let limits { try Self.write(limits, to: "carillon.conf", on: bus) }
        service = try ServiceProcess(on: bus)
    }

    private static func write(_ text: String, to file: String, on bus: PrivateBus) throws {
        let directory = try bus.directory.createSubdirectory("config/carillon")
        try text.write(toFile: directory + "/" + file, atomically: true, encoding: .utf8)
    }

    var environment: [String: String] { service.bus.environment }

    func configure(_ text: String) throws { try Self.write(text, to: "bridge.conf", on: service.bus) }

    /// It reads that when it gets a SIGHUP.
    func configureService(_ text: String) throws { try Self.write(text, to: "carillon.conf", on: service.bus) }

    /// - Parameter queue: the limit of that name; nil for the default.
    func configure(
        broker: MosquittoBroker, host: String, exports: String = "", imports: String = "", queue: Int? = nil
    ) throws {
        self.broker = (broker, host)
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
            \(queue.map { "[Limits]\nqueue=\($0)" } ?? "")
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
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        return observer
    }

    /// What the bridge says of itself.
    func status() throws -> [String: Any] {
        let result = try run("bridge", "status", "--json")
        return try JSONSerialization.jsonObject(with: Data(result.standardOutput.utf8)) as? [String: Any] ?? [:]
    }

    /// Waits until the bridge wants so many filters, and the broker has subscribed it to as many: what the bridge says may
    /// be ahead of what the broker has read, and so may be what others publish.
    func waitForSubscriptions(_ count: Int) throws {
        try eventually("\(count) subscriptions", every: .milliseconds(50)) {
            try status()["subscriptions"] as? Int == count
        }
        guard let broker else { return }
        try eventually("the broker has subscribed \(broker.host) to \(count) filters", every: .milliseconds(50)) {
            // 1700000000: carillon-home-b-u-4711 1 carillon/1/home/+/+/n/com/example/Saved
            let pattern = try Regex(#"(?m)^\d+: carillon-[^ ]*-\#(broker.host)-u-[^ ]* \d (carillon/[^ ]*/[nv]/.*)$"#)
            return Set(broker.broker.log.matches(of: pattern).map { $0.output[1].substring }).count >= count
        }
    }
}
