// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// `carillon bridge status|test|reload|forget`: inspects and controls the bridge of the session to other machines (G2).
enum BridgeCommand {
    enum Action: String, CaseIterable {
        case status = "status"
        case test = "test"
        case reload = "reload"
        case forget = "forget"
    }

    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        let parser = CommandLineParser(
            program: "carillon bridge", usage: "ACTION [HOST/USER]",
            summary: "Inspects the bridge to other machines.",
            description: """
                ACTION is one of: status, which shows the state of the bridge and its hosts; test, which sends a message
                to the bridge by way of the broker; reload, which makes it read bridge.conf again; and forget, which
                removes everything that the broker and this session keep of a host that is gone for good. The bridge is
                not started. The exit status is 2 without a bridge, and if the broker can't be reached.
                """)
        let json = parser.flag("json", short: "j", help: "Print one JSON object")
        let color = ColorChoice.declare(on: parser)
        let version = parser.flag("version", help: "Show the version and exit")
        let rest = try parser.parse(arguments)
        if parser.value(version) { return Output.writeVersion() }
        guard let word = rest.first else { throw UsageError("bridge needs one of: \(words)") }
        guard let action = Action(rawValue: word) else {
            throw UsageError("bridge has no action '\(word)', only: \(words)")
        }
        let count = action == .forget ? 2 : 1
        if rest.count > count { throw UsageError("bridge \(word) takes no argument '\(rest[count])'") }
        let run = BridgeRun(
            isJSON: parser.value(json), terminal: Terminal(color: try ColorChoice.value(of: color, from: parser)))
        return switch action {
        case .status: run.status()
        case .test: run.test()
        case .reload: run.reload()
        case .forget: run.forget(try origin(in: rest))
        }
    }

    /// Returns the host and the user of the argument HOST/USER.
    private static func origin(in words: [String]) throws(UsageError) -> (host: String, user: String) {
        let parts = words.dropFirst().first?.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false) ?? []
        guard parts.count == 2, !parts[0].isEmpty, !parts[1].isEmpty else {
            throw UsageError("bridge forget needs HOST/USER, as 'carillon bridge status' lists them")
        }
        return (String(parts[0]), String(parts[1]))
    }

    private static let words = Action.allCases.map(\.rawValue).joined(separator: ", ")
}

/// One run of `carillon bridge`: it calls one method of the bridge, prints the reply, and returns the exit code.
private final class BridgeRun: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private let isJSON: Bool
    private let terminal: Terminal
    private let loop = EventLoop()
    private let inquirer = BridgeInquirer()
    private var exitCode = ExitCode.done
    private var isOver = false

    init(isJSON: Bool, terminal: Terminal) {
        self.isJSON = isJSON
        self.terminal = terminal
    }

    func status() -> ExitCode {
        inquirer.askStatus { [self] result in
            if case .success(let status?) = result, status.state != "connected" { exitCode = .unavailable }
            switch result {
            case .success(let status?) where isJSON: print(PropertyListJSON.text(.dictionary(status.entries)))
            case .success(let status?):
                var table = Table([Table.Column("label"), Table.Column("value")])
                for line in BridgeText.lines(status) {
                    table.append([Table.Cell(line.label, .dim), Table.Cell(line.text, line.style)])
                }
                // Lines are not cut, even on a narrow terminal.
                let uncutOutput = Terminal(width: nil, hasColors: terminal.hasColors)
                for line in table.lines(on: uncutOutput, showsTitles: false) { print(line) }
            case .success(nil): failWithoutBridge()
            case .failure(let error): fail(error)
            }
            end()
        }
        return wait()
    }

    func test() -> ExitCode {
        ask(BridgeWire.test) { [self] reply throws(BusError) in
            let microseconds = try BridgeWire.roundTrip(in: reply)
            if isJSON {
                print(PropertyListJSON.object([("roundTrip", String(microseconds))]))
            } else {
                print("round trip: \(Readable.decimal(Double(microseconds) / 1000, places: 1)) ms")
            }
        }
        return wait()
    }

    func reload() -> ExitCode {
        ask(BridgeWire.reload) { _ in }
        return wait()
    }

    func forget(_ origin: (host: String, user: String)) -> ExitCode {
        let call = BridgeWire.forgetCall(host: origin.host, user: origin.user)
        // The bridge replies only after the broker has removed all retained messages of the host.
        inquirer.ask(call, within: .milliseconds(300_000)) { [self] result in
            do throws(BusError) {
                let (removed, refused, reason) = try BridgeWire.forgotten(in: try result.get())
                if isJSON {
                    print(PropertyListJSON.object([("removed", String(removed)), ("refused", String(refused))]))
                } else {
                    let name = NotificationFormat.readable("\(origin.host)/\(origin.user)")
                    print(
                        removed == 0 && refused == 0
                            ? "the broker retains no messages of \(name)"
                            : "\(removed) retained \(removed == 1 ? "message" : "messages") of \(name) removed")
                }
                if refused > 0 {
                    printError(
                        "carillon: the broker refused to remove \(refused): \(NotificationFormat.harmless(reason)); "
                            + "see its access list")
                    exitCode = .unavailable
                }
            } catch {
                fail(error)
            }
            end()
        }
        return wait()
    }

    /// Calls a method of the bridge without arguments, and ends the run after its reply.
    private func ask(_ member: MemberName, _ take: @escaping (Message) throws(BusError) -> Void) {
        inquirer.ask(member) { [self] result in
            do throws(BusError) {
                try take(try result.get())
            } catch {
                fail(error)
            }
            end()
        }
    }

    /// Ends the run after the reply. Without a bus the error comes at once, before the loop runs.
    private func end() {
        isOver = true
        loop.quit()
    }

    /// Runs the loop until the reply, and returns the exit code.
    private func wait() -> ExitCode {
        if !isOver { loop.run() }
        return exitCode
    }

    private func print(_ line: String) {
        if !Output.write(line) { exitCode = .outputFailed }
    }

    private func fail(_ error: BusError) {
        if error.meansNoService { return failWithoutBridge() }
        let words = NotificationFormat.harmless(error.message)
        printError(inquirer.isConnected ? "carillon: \(words)" : "carillon: no bus: \(words)\n\(Advice.withoutBus)")
        // `reload` fails with this error for a mistake in bridge.conf, which the user has to correct.
        exitCode = error.centerError == .invalidConfiguration ? .usage : .unavailable
    }

    private func failWithoutBridge() {
        printError(
            "carillon: there is no bridge in this session; if carillon/bridge.conf names a broker, "
                + "'systemctl --user start carillon-bridge', or carillon-bridge itself, starts it")
        exitCode = .unavailable
    }
}
