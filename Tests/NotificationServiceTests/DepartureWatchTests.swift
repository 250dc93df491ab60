// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// Clients leave at every moment of what the service and the bus say to each other about match rules, and the bus takes
/// as many rules as it likes.
@Suite("D8, E5: detection of clients that leave", .limited)
struct DepartureWatchTests {
    private static let clients: [ClientName] = [":1.1", ":1.2", ":1.3"]
    private static let later: ClientName = ":1.4"

    /// What the bus takes.
    struct Room: Sendable, CustomTestStringConvertible {
        /// How many rules at once.
        let rules: Int
        /// Whether the general one finds room each time, never, or not the first time.
        let general: General

        enum General: Sendable, CaseIterable { case taken, refused, later }

        var testDescription: String { "\(rules) rules, the general one \(general)" }
    }

    /// A bus with its rules, and who has noticed what.
    private final class Scene {
        let bus = QuietBus()
        let room: Room
        /// Who asks for the process of each client besides, behind its match rule.
        let registry: ClientRegistry
        private var rules: [String] = []
        private var present = Set(DepartureWatchTests.clients + [DepartureWatchTests.later])
        private var generalAsked = 0
        /// How often each was found to be gone.
        private(set) var noticed: [ClientName: Int] = [:]

        init(_ room: Room) {
            self.room = room
            registry = ClientRegistry(bus: bus, table: NoProcesses())
        }

        func watch(_ client: ClientName) {
            registry.watch(client) { [unowned self] in notice(client) }
        }

        private func notice(_ client: ClientName) {
            noticed[client, default: 0] += 1
            registry.forget(client)
        }

        /// The bus does what it was asked first.
        ///
        /// - Returns: false when there is nothing.
        func step() -> Bool {
            guard let request = bus.next() else { return false }
            switch request.member {
            case "AddMatch":
                let isRefused: Bool
                if request.text == DepartureWatch.generalRule {
                    generalAsked += 1
                    isRefused =
                        rules.count >= room.rules || room.general == .refused
                        || room.general == .later && generalAsked == 1
                } else {
                    isRefused = rules.count >= room.rules
                }
                guard !isRefused else {
                    request.completion?(
                        .failure(BusError(name: BusError.limitsExceededName, message: "too many match rules")))
                    break
                }
                rules.append(request.text)
                request.completion?(.success(QuietBus.done))
            case "RemoveMatch": if let index = rules.firstIndex(of: request.text) { rules.remove(at: index) }
            case "GetConnectionCredentials":
                guard let client = UniqueName(rawValue: request.text), present.contains(client) else {
                    request.completion?(
                        .failure(BusError(name: BusError.nameHasNoOwnerName, message: "there is no such name")))
                    break
                }
                let reply = QuietBus.done
                var writer = MessageWriter(reply)
                writer.array(of: "{sv}") { $0.entry("ProcessID", UInt32(7)) }
                request.completion?(.success(reply))
            default: Issue.record("\(request.member)")
            }
            return true
        }

        /// A client leaves now. The service is told where one of its rules says so.
        func leave(_ client: ClientName) {
            present.remove(client)
            if rules.contains(where: { $0 == DepartureWatch.generalRule || $0 == OwnerChange.matchRule(for: client) }) {
                notice(client)
            }
        }

        /// All is done, also what is tried again.
        func finish() {
            for _ in 0..<4 {
                while step() {}
                bus.pass(milliseconds: 5000)
            }
            while step() {}
        }

        var hasRules: Bool { !rules.isEmpty }
    }

    static let rooms = [0, 1, 2, 3, 100].flatMap { rules in
        Room.General.allCases.map { Room(rules: rules, general: $0) }
    }

    @Test(
        "D8: the departure of a client at any moment is detected once, and no other client counts as gone",
        arguments: rooms)
    func everyMoment(room: Room) {
        for leaver in Self.clients {
            // Until it leaves when all is done.
            for moment in 0..<100 {
                let scene = Scene(room)
                for client in Self.clients { scene.watch(client) }
                var isDone = false
                for _ in 0..<moment where !isDone { isDone = !scene.step() }
                scene.leave(leaver)
                scene.finish()
                #expect(scene.noticed == [leaver: 1], "left behind \(moment) requests")
                if isDone { break }
            }
        }
    }

    @Test("D8: the departure of a client that is watched later than the others is detected, too", arguments: rooms)
    func watchedLater(room: Room) {
        let late = Self.clients[2]
        for moment in 0..<12 {
            for leaving in 0..<100 {
                let scene = Scene(room)
                for client in Self.clients where client != late { scene.watch(client) }
                for _ in 0..<moment { _ = scene.step() }
                scene.watch(late)
                var isDone = false
                for _ in 0..<leaving where !isDone { isDone = !scene.step() }
                scene.leave(late)
                scene.finish()
                #expect(scene.noticed == [late: 1], "watched behind \(moment), left behind \(leaving) more")
                if isDone { break }
            }
        }
    }

    @Test(
        "D8: the departure of a client that came after another left is detected, with or without a match rule",
        arguments: rooms)
    func watchedAfterAnother(room: Room) {
        for leaver in Self.clients {
            for moment in 0..<100 {
                let scene = Scene(room)
                for client in Self.clients { scene.watch(client) }
                scene.finish()
                scene.leave(leaver)
                scene.finish()
                scene.watch(Self.later)
                var isDone = false
                for _ in 0..<moment where !isDone { isDone = !scene.step() }
                scene.leave(Self.later)
                scene.finish()
                #expect(scene.noticed == [leaver: 1, Self.later: 1], "left behind \(moment) requests")
                if isDone { break }
            }
        }
    }

    @Test(
        "D8: all match rules are removed with the last client, and a later client's departure is detected",
        arguments: rooms)
    func forgotten(room: Room) {
        let scene = Scene(room)
        for client in Self.clients { scene.watch(client) }
        scene.finish()
        for client in Self.clients { scene.registry.forget(client) }
        scene.finish()
        #expect(!scene.hasRules)
        scene.watch(Self.clients[0])
        scene.finish()
        scene.leave(Self.clients[0])
        scene.finish()
        #expect(scene.noticed == [Self.clients[0]: 1])
    }
}
