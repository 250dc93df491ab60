// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The search for words that a running service knows, for a completion. It starts no service, and waits for a limited
/// time, because the user waits at the keyboard.
final class ServiceWords: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private static let maxMilliseconds: UInt32 = 1000
    /// The maximum number of clients whose observers are listed: as many as a terminal can show, and as a service
    /// answers in the time limit.
    private static let maxClients = 256

    private let kind: CommandWords.Known
    private let loop = EventLoop()
    private let inquirer = ServiceInquirer()
    private var candidates: [Candidate] = []
    /// The number of unanswered questions.
    private var open = 0

    private init(_ kind: CommandWords.Known) {
        self.kind = kind
    }

    /// - Returns: the words found within the time limit.
    static func find(_ kind: CommandWords.Known) -> [Candidate] {
        let words = ServiceWords(kind)
        let limit = EventSource.once(milliseconds: maxMilliseconds, on: .default) { words.loop.quit() }
        words.inquirer.start()
        words.ask()
        if words.open > 0 { words.loop.run() }
        withExtendedLifetime(limit) {}
        words.inquirer.stop()
        return words.candidates.sorted { $0.word.comesBefore($1.word) }
    }

    private func ask() {
        ask(ListClients()) { [self] clients in
            switch kind {
            case .clients: add(clients)
            case .names, .objects:
                for client in clients.prefix(Self.maxClients) {
                    ask(ListObserversFrom(of: client.name.rawValue)) { [self] observers in
                        for each in observers { add(each.observer.name, each.observer.object, "observed") }
                    }
                }
            }
        }
        switch kind {
        case .names, .objects:
            ask(Get(name: "")) { [self] values in
                for value in values { add(value.name, value.object, "has a value") }
            }
        case .clients: break
        }
    }

    private func ask<Method: CenterMethod>(_ method: Method, _ answered: @escaping @Sendable (Method.Reply) -> Void) {
        open += 1
        inquirer.ask(method) { [self] in
            if case .success(let reply) = $0 { answered(reply) }
            open -= 1
            if open == 0 { loop.quit() }
        }
    }

    private func add(_ name: String, _ object: String, _ description: String) {
        switch kind {
        case .objects(let wanted):
            guard !object.isEmpty, wanted == nil || name.isEmpty || name == wanted else { return }
            candidates.append(Candidate(word: object, description: name))
        default: if !name.isEmpty { candidates.append(Candidate(word: name, description: description)) }
        }
    }

    private func add(_ clients: [ListedClient]) {
        for client in clients {
            candidates.append(Candidate(word: client.name.rawValue, description: client.process))
            if !client.process.isEmpty { candidates.append(Candidate(word: client.process, description: "program")) }
            if !client.application.isEmpty {
                candidates.append(Candidate(word: client.application, description: "application"))
            }
        }
    }
}
