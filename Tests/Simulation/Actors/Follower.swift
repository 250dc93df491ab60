// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// What a client follows that brings in what is wanted here, and takes elsewhere what is kept here (G4, G5), as a bridge
/// does.
final class Follower {
    let interest: FollowedList<FollowInterest>
    let values: FollowedList<FollowValues>
    unowned let client: any Client

    /// - Parameters:
    ///   - page: what it asks for at a time, at most.
    init(_ client: any Client, page: UInt32) {
        self.client = client
        let ledger = client.ledger
        interest = FollowedList(client, first: FollowInterest(most: page)) { wanted in
            wanted.names.last.map { FollowInterest(after: $0, most: page) }
        }
        interest.onAnswer = { [unowned client] pieces in
            if let witness = client.witness { ledger.judgeInterest(pieces, of: witness.client) }
        }
        values = FollowedList(client, first: FollowValues(most: page)) { listed in
            listed.last.map { FollowValues(after: $0.serial, most: page) }
        }
        values.onAnswer = { pieces in ledger.values.judgeListed(pieces) }
    }

    func ask() {
        interest.ask()
        values.ask()
    }

    var isAnswered: Bool { interest.pieces != nil && values.pieces != nil }

    /// What is wanted as it was told last; nil for any name. Nothing while it asks.
    var wanted: Set<String?>? { interest.pieces.map(Self.wanted) }

    /// The values that there are as it was told last. Nothing while it asks.
    var listed: [FollowValues.Listed]? { values.pieces.map { $0.flatMap(\.reply) } }

    static func wanted(in pieces: [FollowedList<FollowInterest>.Piece]) -> Set<String?> {
        var wanted: Set<String?> = Set(pieces.flatMap(\.reply.names))
        if pieces.contains(where: \.reply.any) { wanted.insert(nil) }
        return wanted
    }
}

/// A list that the service keeps, as a client knows it that asks for it piece by piece, and anew when it is told that it has
/// changed.
final class FollowedList<Method: CenterMethod> {
    struct Piece {
        let reply: Method.Reply
        let asked: Int64
    }

    /// All of it; nil before that is answered, also when it is asked for anew.
    private(set) var pieces: [Piece]?
    /// Gets all of it.
    var onAnswer: (([Piece]) -> Void)?
    private unowned let client: any Client
    private let first: Method
    private let next: (Method.Reply) -> Method?
    /// How often it has asked from the beginning.
    private var questions = 0
    /// How often it was told that something has changed.
    private var words = 0

    /// Until it asks anew where there was no answer, or a refusal, in microseconds.
    private static var pause: Int64 { 1_000_000 }

    /// - Parameter next: asks for what comes behind an answer; nil where nothing does.
    init(_ client: any Client, first: Method, next: @escaping (Method.Reply) -> Method?) {
        self.client = client
        self.first = first
        self.next = next
    }

    func ask() {
        questions += 1
        pieces = nil
        ask(first, questions, behind: [])
    }

    /// The service says that it has changed.
    func changed() {
        words += 1
        let ledger = client.ledger
        // One that comes anew tells it once more, and so does one to which the bus refused something.
        if ledger.incarnations == 1, !ledger.wasServiceTroubled, !ledger.wasBusCrowded, words > questions {
            ledger.world.violate(
                "G4",
                "\(client.witness?.client.rawValue ?? "?") asked \(questions) times with \(Method.member), and is "
                    + "told of \(words) changes")
        }
        ask()
    }

    private func ask(_ method: Method, _ question: Int, behind known: [Piece]) {
        let world = client.ledger.world
        let asked = world.now
        client.ask(method) { [weak self] reply in
            guard let self, client.isThere, question == questions else { return }
            guard let reply else {
                return world.after(Self.pause) { [weak self] in
                    if let self, client.isThere, question == questions { ask() }
                }
            }
            let pieces = known + [Piece(reply: reply, asked: asked)]
            if let next = next(reply) { return ask(next, question, behind: pieces) }
            self.pieces = pieces
            onAnswer?(pieces)
        }
    }
}
