// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop
import CarillonWire

/// Clients as a person names them: by unique name, process id, name of the program, or id of the application.
struct ChosenClients {
    let text: String

    /// - Throws: when `text` can't name any.
    init(_ text: String) throws(UsageError) {
        guard !text.isEmpty else {
            throw UsageError("a CLIENT is a unique name such as :1.42, a process id or a program")
        }
        if text.utf8.first == UInt8(ascii: ":"), UniqueName(rawValue: text) == nil {
            throw UsageError("'\(text)' is no client; clients are called like :1.42, as 'carillon clients' lists them")
        }
        self.text = text
    }

    func contains(_ client: ListedClient) -> Bool {
        if let name = UniqueName(rawValue: text) { return client.name == name }
        if let id = UInt32(text) { return client.processID == id }
        // The kernel keeps so much of a program's name.
        return (!client.process.isEmpty && client.process.utf8.elementsEqual(text.utf8.prefix(15)))
            || (!client.application.isEmpty && client.application == text)
    }

    /// Asks the service for those that it knows, and about one after the other; then, or where there is none, the run ends.
    ///
    /// - Parameters:
    ///   - question: what is asked about a client.
    ///   - answered: gets each answer.
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

    /// Ends the run, as no client is one of them.
    func reportNone(on session: CommandSession) {
        printError("carillon: no client is '\(text)'; 'carillon clients' lists them")
        session.finish(.nothing)
    }
}
