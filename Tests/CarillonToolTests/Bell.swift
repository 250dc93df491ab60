// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation
import Testing

/// A bus with the service, and the `carillon` command on it.
struct Bell {
    let bus: PrivateBus
    let service: ServiceProcess

    init(_ kind: BusKind = .dbusDaemon) throws {
        bus = try PrivateBus(kind)
        service = try ServiceProcess(on: bus)
    }

    /// Runs `carillon` to its end.
    func run(_ arguments: String..., environment: [String: String] = [:]) throws -> CommandResult {
        try Command.run(
            try Self.path(), arguments, environment: bus.environment.merging(environment) { $1 })
    }

    /// Runs `carillon post`, which has to succeed.
    func post(_ arguments: String...) throws {
        let result = try Command.run(try Self.path(), ["post"] + arguments, environment: bus.environment)
        try #require(result.exitCode == 0, "\(result)")
    }

    /// Starts `carillon observe`, and returns when it observes.
    func observe(_ arguments: String..., environment: [String: String] = [:]) throws -> RunningCommand {
        let command = try RunningCommand(
            try Self.path(), ["observe"] + arguments, environment: bus.environment.merging(environment) { $1 })
        _ = try command.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        return command
    }

    static func path() throws -> String {
        try Executables.path(of: "carillon")
    }
}

/// What `observe --json` prints, parsed.
struct ObservedLine {
    let text: String
    let members: [String: Any]

    init(_ text: String) throws {
        self.text = text
        members = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }

    /// userInfo as it stands in the text, where 1 and 1.0 differ.
    var userInfoText: String {
        text.firstMatch(of: /"userInfo": (\{.*\}), "observers": \[/).map { String($0.1) } ?? ""
    }
}
