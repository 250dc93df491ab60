// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Policy that changed while there was no service.
@Suite("P3: changes of policy between two services", .limited)
struct PolicyRestartTests {
    private func write(_ configuration: String, on bus: PrivateBus) throws {
        let directory = try #require(bus.environment["XDG_CONFIG_HOME"]) + "/carillon"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try configuration.write(toFile: directory + "/carillon.conf", atomically: true, encoding: .utf8)
    }

    @Test("P3: restored observers that policy no longer allows are removed, and their client is informed")
    func restarted() throws {
        guard geteuid() == 0 else { try Test.cancel("only root may give a process another root directory this way") }
        let python = "/usr/bin/python3"
        guard try Command.run(python, ["-c", "import gi, dbus"]).exitCode == 0 else {
            try Test.cancel("\(python) has no gi or no dbus")
        }
        let bus = try PrivateBus()
        try write("[Policy org.example.Boxed]\nobserve=*\n", on: bus)
        let first = try ServiceProcess(on: bus)
        let root = try TemporaryDirectory()
        try root.write("[Application]\nname=org.example.Boxed\n", to: ".flatpak-info")
        let program = Executables.packageRoot + "/Tests/Interop/test_policy.py"
        let sandbox = try RunningCommand(python, ["-B", program, "sandbox", root.path], environment: bus.environment)
        /// What the program in the sandbox answers.
        func ask(_ request: String) throws -> String {
            sandbox.write(request + "\n")
            return try sandbox.nextLine()
        }
        func observe(_ name: String) throws -> String {
            try ask(#"["call", "org.carillon.NotificationCenter1", "AddObserver", "(ssa{sv})", ["\#(name)", "", {}]]"#)
        }
        #expect(try observe("") == #"{"result": [1]}"#)
        #expect(try observe("org.example.Boxed.Ding") == #"{"result": [2]}"#)
        let poster = try Client(on: bus)
        #expect(try poster.post("Ding") == 1)

        first.signal(SIGKILL)
        _ = try first.waitForExit()
        try write("", on: bus)
        let second = try ServiceProcess(on: bus)
        try eventually("the sandbox is told: \(second.transcript)") {
            // Perhaps behind the word that something on its way may have been lost.
            try ask(#"["dropped"]"#).contains(#"[0, [1], "not-allowed"]"#)
        }
        #expect(try poster.post("Ding") == 0)
        #expect(try poster.post("org.example.Boxed.Ding") == 1)
        sandbox.terminate()
    }
}
