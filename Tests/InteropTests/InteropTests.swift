// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The service as programs in other languages, and the tools of the distribution, see it: each module of
/// `Tests/Interop` on a bus of its own with a service of its own, on every kind of bus that can be started here.
@Suite("Interoperability", .limited)
struct InteropTests {
    /// A Python program of `Tests/Interop` whose name begins with `test_`.
    struct Module: Sendable, CustomTestStringConvertible {
        let name: String

        var path: String { "\(Self.directory)/\(name)" }
        var testDescription: String { name }

        static let directory = Executables.packageRoot + "/Tests/Interop"
        static let all: [Module] = {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
            return names.sorted().filter { $0.hasPrefix("test_") && $0.hasSuffix(".py") }.map(Module.init)
        }()
    }

    /// The interpreter for which the distribution's D-Bus bindings are installed; `python3` in PATH may be another.
    static let python = "/usr/bin/python3"

    /// The exit code of a module that needs what is not installed.
    static let cannotRun: Int32 = 77

    // One after the other on each kind of bus, as each keeps several processes busy.

    @Test("Every Python module succeeds on dbus-daemon", .serialized, .limited, arguments: Module.all)
    func moduleOnDaemon(_ module: Module) async throws { try await run(module, on: .dbusDaemon) }

    @Test(
        "Each Python test module passes on dbus-broker", .serialized, .limited,
        .enabled(if: BusKind.available.contains(.dbusBroker), "dbus-broker is not installed"), arguments: Module.all)
    func moduleOnBroker(_ module: Module) async throws { try await run(module, on: .dbusBroker) }

    private func run(_ module: Module, on kind: BusKind) async throws {
        guard FileManager.default.isExecutableFile(atPath: Self.python) else {
            try skip(module, "\(Self.python) is not installed")
            return
        }
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let environment = bus.environment.merging(["CARILLON_INTERFACE_XML": Executables.interfaceXML]) { $1 }
        let result = try await onOwnThread(within: .work(.seconds(1100), because: "longer than what is in it")) {
            try Command.run(
                Self.python, ["-B", module.path], environment: environment,
                within: .work(.seconds(1000), because: "it is a suite of its own, which has bounds"))
        }

        if result.exitCode == Self.cannotRun {
            let reason = result.standardError.split(separator: "\n").last
            try skip(module, reason.map(String.init) ?? "it does not say why")
        } else {
            #expect(result.exitCode == 0, "\(result)\n\(service.transcript)\n--- bus\n\(bus.log)")
        }
        try #require(service.isRunning, "\(service.transcript)")
        #expect(try service.terminate() == .exited(0))
    }

    @Test("The folder of Python modules is complete")
    func modules() {
        let names = Module.all.map(\.name)
        #expect(
            names == [
                "test_bad_input.py", "test_channel.py", "test_dbus_python.py", "test_gdbus.py", "test_introspection.py",
                "test_package.py", "test_policy.py", "test_posting_queue.py", "test_retained.py",
                "test_silent_libraries.py", "test_suspension.py", "test_tools.py",
            ])
    }

    /// Skips this case, which in CI, where all is installed, is a failure.
    private func skip(_ module: Module, _ reason: String) throws {
        let comment: Comment = "\(module.name) is skipped: \(reason)"
        if ProcessInfo.processInfo.environment["CI"] == "true" {
            Issue.record(comment)
        } else {
            FileHandle.standardError.write(Data("\(comment)\n".utf8))
            try Test.cancel(comment)
        }
    }
}
