// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop
import CarillonWire

/// The clients that the argument CLIENT of a command selects: by unique name, process ID, program name, or application
/// ID. The commands `why`, `observers`, `suspend`, `resume` and `follow` use it.
struct ClientSelector {
    /// The argument.
    let text: String

    /// - Throws: an error if `text` is empty, or begins like a unique name and is none.
    init(_ text: String) throws(UsageError) {
        guard !text.isEmpty else {
            throw UsageError("a CLIENT is a unique name such as :1.42, a process id or a program")
        }
        if text.utf8.first == UInt8(ascii: ":"), UniqueName(rawValue: text) == nil {
            throw UsageError("'\(text)' is not a client; 'carillon clients' lists all clients, such as :1.42")
        }
        self.text = text
    }

    /// Whether the argument selects a client.
    func contains(_ client: ListedClient) -> Bool {
        if let name = UniqueName(rawValue: text) { return client.name == name }
        if let id = UInt32(text) { return client.processID == id }
        // The kernel keeps only 15 bytes of a program's name.
        return (!client.process.isEmpty && client.process.utf8.elementsEqual(text.utf8.prefix(15)))
            || (!client.application.isEmpty && client.application == text)
    }

    /// Requests the list of clients, and then calls a method of the service for each selected client in turn. It ends
    /// the run afterwards, or if no client is selected.
    ///
    /// - Parameters:
    ///   - question: returns the method call for a client.
    ///   - answered: receives each reply.
    func ask<Method: CenterMethod>(
        _ question: @escaping @Sendable (ListedClient) -> Method, on session: CommandSession,
        answered: @escaping @Sendable (ListedClient, Method.Reply) -> Void
    ) {
        let chosen = self
        @Sendable func ask(about clients: ArraySlice<ListedClient>) {
            guard let client = clients.first else { return session.finish(.done) }
            session.ask(question(client)) { reply in
                answered(client, reply)
                ask(about: clients.dropFirst())
            }
        }
        session.ask(ListClients()) { clients in
            let those = clients.filter(chosen.contains)
            guard those.isEmpty else { return ask(about: those[...]) }
            chosen.reportNone(on: session)
        }
    }

    /// Ends the run with an error, because no client is selected.
    func reportNone(on session: CommandSession) {
        printError("carillon: there is no client '\(text)'; 'carillon clients' lists all clients")
        session.finish(.nothing)
    }
}
