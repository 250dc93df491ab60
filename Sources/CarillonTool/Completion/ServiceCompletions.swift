// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The search for completions that only the running service can list: names, objects or clients. It starts no service.
/// After one second it ends with the words found so far, because the user waits at the keyboard.
final class ServiceCompletions: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    /// The time limit of the search, in milliseconds.
    private static let maxMilliseconds: UInt32 = 1000
    /// The maximum number of clients whose observers are requested, each with a call. A
    /// terminal can show no more, and a service answers that many within the time limit.
    private static let maxClients = 256

    private let kind: IncompleteCommandLine.ServiceWordKind
    private let loop = EventLoop()
    private let inquirer = ServiceInquirer()
    private var candidates: [Candidate] = []
    /// The number of calls without a reply.
    private var unanswered = 0

    private init(_ kind: IncompleteCommandLine.ServiceWordKind) {
        self.kind = kind
    }

    /// Searches for words of a kind.
    ///
    /// - Returns: the words found within the time limit, in their order for people.
    static func find(_ kind: IncompleteCommandLine.ServiceWordKind) -> [Candidate] {
        let words = ServiceCompletions(kind)
        let limit = EventSource.once(milliseconds: maxMilliseconds, on: .default) { words.loop.quit() }
        words.inquirer.start()
        words.ask()
        if words.unanswered > 0 { words.loop.run() }
        withExtendedLifetime(limit) {}
        words.inquirer.stop()
        return words.candidates.sorted { $0.word.comesBefore($1.word) }
    }

    /// Makes the calls for the kind of words. Names and objects are those of observers and of retained values.
    private func ask() {
        ask(ListClients()) { [self] clients in
            switch kind {
            case .clients: add(clients)
            case .names, .objects:
                // Only the first page of each client's observers is requested, up to 1024 of them.
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

    /// Calls a method of the service, and ends the search after the last reply. Errors are ignored.
    private func ask<Method: CenterMethod>(_ method: Method, _ answered: @escaping @Sendable (Method.Reply) -> Void) {
        unanswered += 1
        inquirer.ask(method) { [self] in
            if case .success(let reply) = $0 { answered(reply) }
            unanswered -= 1
            if unanswered == 0 { loop.quit() }
        }
    }

    /// Adds the name or the object, depending on the kind of words. An empty name is that of an observer of all names.
    /// Its object belongs to each name.
    private func add(_ name: String, _ object: String, _ description: String) {
        switch kind {
        case .objects(let wanted):
            guard !object.isEmpty, wanted == nil || name.isEmpty || name == wanted else { return }
            candidates.append(Candidate(word: object, description: name))
        default: if !name.isEmpty { candidates.append(Candidate(word: name, description: description)) }
        }
    }

    /// Adds each identification that the argument CLIENT of commands accepts.
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
