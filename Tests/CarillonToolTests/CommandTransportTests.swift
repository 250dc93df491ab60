// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Testing

@Suite("F2: the command over a channel", .serialized, .limited)
struct CommandTransportTests {
    private static let channel = ["CARILLON_TRANSPORT": "channel"]

    private func clients(_ bell: Bell) throws -> String {
        try Command.run(
            "gdbus",
            [
                "call", "--address", bell.bus.address, "--dest", ServiceProcess.busName, "--object-path",
                ServiceProcess.objectPath, "--method", "org.carillon.NotificationCenter1.ListClients",
            ], environment: bell.bus.environment
        ).standardOutput
    }

    @Test("CARILLON_TRANSPORT=channel makes post and observe use a channel", arguments: BusKind.available)
    func works(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("Ding", "--json", "--count", "3", environment: Self.channel)
        try eventually("a channel: \(observer.transcript)") { try clients(bell).contains("'channel': <true>") }
        for number in 1...2 {
            let result = try bell.run("post", "Ding", "n=\(number)", "--verbose", environment: Self.channel)
            #expect(result.exitCode == 0 && result.standardOutput == "1 client\n", "\(result)")
        }
        try bell.post("Ding", "n=3")
        for number in 1...3 {
            #expect(try ObservedLine(observer.nextLine()).userInfoText == "{\"n\": \(number)}")
        }
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        let refused = try bell.run("post", String(repeating: "x", count: 100_000), environment: Self.channel)
        #expect(refused.exitCode == 1, "\(refused)")
    }

    @Test("An unknown value of CARILLON_TRANSPORT selects the bus")
    func nonsense() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "1", environment: ["CARILLON_TRANSPORT": "pigeon"])
        #expect(!(try clients(bell).contains("'channel': <true>")))
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(0))
    }
}
