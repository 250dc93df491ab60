// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// Which policy was in force when, as far as it is certain, and what it allows to whom (P2, P3).
///
/// A service reads the file some time after it has changed, and an answer is read some time after it was decided. So a
/// verdict is of a stretch of time: it is certain where all policies that may have been in force agree.
final class PolicyLedger {
    enum Verdict {
        case allowed
        case refused
        case uncertain
    }

    private struct Version {
        let file: PolicyFile
        let changed: Int64
        /// When every service had read it; nil before.
        var settled: Int64?
    }

    /// In which a client that reads is told what it has to know.
    private static let timeOfWords: Int64 = 15_000_000

    private unowned let ledger: Ledger
    private var versions: [Version] = [Version(file: PolicyFile(), changed: 0, settled: 0)]
    private var applications: [UniqueName: Application] = [:]
    /// Whether applications in sandboxes may have called.
    var areSandboxesThere = false

    init(_ ledger: Ledger) {
        self.ledger = ledger
    }

    // MARK: What is known

    /// What is in force from the beginning.
    func begin(with file: PolicyFile) {
        versions = [Version(file: file, changed: 0, settled: 0)]
    }

    /// The file has changed.
    ///
    /// - Returns: the number of the version.
    func change(to file: PolicyFile) -> Int {
        versions.append(Version(file: file, changed: ledger.world.now))
        return versions.count - 1
    }

    /// Every service that there is has read a version.
    func settle(_ number: Int) {
        guard versions[number].settled == nil else { return }
        let (time, incarnation) = (ledger.world.now, ledger.incarnations)
        versions[number].settled = time
        ledger.world.after(Self.timeOfWords) { [unowned self] in
            guard incarnation == ledger.incarnations, !ledger.wasAnythingTheMatter else { return }
            for witness in ledger.witnesses() where !witness.hasLeft && witness.isReading() {
                judgeRevocations(of: witness, since: time)
            }
        }
    }

    var lastVersion: Int { versions.count - 1 }

    func note(_ client: UniqueName, _ application: Application?) {
        applications[client] = application
    }

    func isSandboxed(_ client: UniqueName) -> Bool { applications[client]?.isSandboxed == true }

    // MARK: Verdicts

    /// - Parameters:
    ///   - name: nil for any.
    ///   - start: when it was asked.
    ///   - mayHaveLeft: whether the connection may have left before the service knew whose it was.
    func verdict(
        _ action: PolicyFile.Action, _ name: String?, of client: UniqueName, since start: Int64,
        mayHaveLeft: Bool = false
    ) -> Verdict {
        verdict(of: client, since: start, mayHaveLeft) { [areSandboxesThere] file, subject in
            file.allows(action, name, to: subject, areSandboxesThere: areSandboxesThere)
        }
    }

    private func verdict(
        of client: UniqueName, since start: Int64, _ mayHaveLeft: Bool,
        _ allows: (PolicyFile, PolicyFile.Subject) -> Bool
    ) -> Verdict {
        let subject = applications[client].map(PolicyFile.Subject.application) ?? .process
        // The bus may have had no room to tell whose it is.
        let subjects = mayHaveLeft || ledger.wasBusCrowded ? [subject, .unidentified] : [subject]
        let known = versions.lastIndex { $0.settled.map { $0 <= start } ?? false } ?? 0
        var found: Set<Bool> = []
        for version in versions[known...] {
            for subject in subjects { found.insert(allows(version.file, subject)) }
        }
        guard found.count == 1 else { return .uncertain }
        return found.contains(true) ? .allowed : .refused
    }

    /// Where all versions of the file that may have been in force since then agree.
    func verdict(since start: Int64, _ allows: (SessionsFile) -> Bool) -> Verdict {
        let known = versions.lastIndex { $0.settled.map { $0 <= start } ?? false } ?? 0
        let found = Set(versions[known...].map { allows($0.file.sessions) })
        guard found.count == 1 else { return .uncertain }
        return found.contains(true) ? .allowed : .refused
    }

    /// The part of the configuration about other sessions.
    var sessions: SessionsFile { versions.last!.file.sessions }

    /// Of a post with all of its options, from when it was made until now.
    func verdict(ofPost number: Int) -> Verdict {
        let post = ledger.posts[number]
        if let user = post.plan.user {
            return verdict(since: post.time) { $0.imports(post.plan.nameText, of: user) }
        }
        let mayHaveLeft = !post.posterStayed
        var verdicts = [
            verdict(.post, post.plan.nameText, of: post.poster, since: post.time, mayHaveLeft: mayHaveLeft)
        ]
        if post.plan.options.origin != nil {
            verdicts.append(
                verdict(of: post.poster, since: post.time, mayHaveLeft) { [areSandboxesThere] in
                    $0.allowsOrigin(to: $1, areSandboxesThere: areSandboxesThere)
                })
        }
        if post.plan.options.goesToAllSessions {
            verdicts.append(
                verdict(of: post.poster, since: post.time, mayHaveLeft) { [areSandboxesThere] in
                    $0.allowsExport(of: post.plan.nameText, to: $1, areSandboxesThere: areSandboxesThere)
                })
        }
        if verdicts.contains(.refused) { return .refused }
        return verdicts.contains(.uncertain) ? .uncertain : .allowed
    }

    /// Whether a client surely may observe a name from a time until now.
    func surelyObserves(_ name: Int?, _ client: UniqueName, since start: Int64) -> Bool {
        verdict(.observe, name.map(Names.name), of: client, since: start) == .allowed
    }

    // MARK: Judging

    /// Holds an answer against the verdict.
    ///
    /// - Parameter isAllowed: whether it was done; false where policy was named as the reason.
    func judge(_ isAllowed: Bool, _ verdict: Verdict, _ what: @autoclosure () -> String) {
        switch verdict {
        case .refused where isAllowed: ledger.world.violate("P2", "policy refuses it, and it is done: \(what())")
        case .allowed where !isAllowed: ledger.world.violate("P2", "policy allows it, and it is refused: \(what())")
        default: break
        }
    }

    /// A post is answered.
    func judgePost(_ number: Int, isAccepted: Bool) {
        judge(
            isAccepted, verdict(ofPost: number),
            "post \(number) of \(ledger.posts[number].poster): \(ledger.posts[number].plan)")
    }

    /// A client asked for what names are needed for, and is answered.
    ///
    /// - Parameter name: nil for any.
    func judge<Reply>(
        _ action: PolicyFile.Action, _ name: Int?, of client: UniqueName, asked: Int64,
        _ result: Result<Reply, BusError>
    ) {
        guard let isAllowed = Self.isAllowed(result) else { return }
        judge(
            isAllowed, verdict(action, name.map(Names.name), of: client, since: asked),
            "\(client) wants to \(action.rawValue) \(name.map(Names.name) ?? "any name")")
    }

    /// Nil where an answer tells nothing of policy.
    private static func isAllowed<Reply>(_ result: Result<Reply, BusError>) -> Bool? {
        switch result {
        case .success: true
        case .failure(let error): error.centerError == .notAllowed ? false : nil
        }
    }

    /// Something arrives at a client.
    func judgeArrival(of number: Int, at client: UniqueName) {
        let post = ledger.posts[number]
        if verdict(ofPost: number) == .refused {
            ledger.world.violate(
                post.plan.user == nil ? "P2" : "G1",
                "policy refuses post \(number) of \(post.poster), and it arrives: \(post.plan)")
        }
        guard verdict(.observe, post.plan.nameText, of: client, since: post.time) == .refused else { return }
        ledger.world.violate("P2", "\(client) may not observe \(post.plan.nameText), and gets post \(number)")
    }

    /// Something that no application in a sandbox may, and everybody else.
    func judgeTrespass<Reply>(_ what: String, of client: UniqueName, _ result: Result<Reply, BusError>) {
        guard !ledger.wasBusCrowded, let isAllowed = Self.isAllowed(result) else { return }
        judge(isAllowed, isSandboxed(client) ? .refused : .allowed, "\(client) wants to \(what)")
    }

    /// A client is shown others.
    func judgeSight(of client: UniqueName, _ shown: [UniqueName]) {
        guard let application = applications[client], application.isSandboxed, !ledger.wasBusCrowded else { return }
        for other in shown where other != client && applications[other] != application {
            ledger.world.violate("P2", "\(client) is in a sandbox, and is shown \(other)")
        }
    }

    /// A client is told that policy has taken an observer from it.
    func judgeRevocation(of registration: Witness.Registration, of client: UniqueName) {
        guard surelyObserves(registration.name, client, since: registration.asked) else { return }
        ledger.world.violate(
            "P3",
            "policy takes the observer of \(registration.name.map(Names.name) ?? "any name") from \(client), and allows it"
        )
    }

    /// P3, at the end: what policy does not allow is not there any more, and the client was told.
    func judgeObservers(of witness: Witness, by center: DistributedCenter) {
        for registration in center.registrations(of: witness.client) ?? [] {
            let verdict = verdict(.observe, registration.name, of: witness.client, since: ledger.world.now)
            guard verdict == .refused else { continue }
            ledger.world.violate(
                "P3", "policy does not let \(witness.client) observe \(registration.name ?? "any name"), and it does")
        }
        judgeRevocations(of: witness, since: ledger.world.now)
    }

    /// P3: a client was told which observers policy took from it, as policy is since then.
    private func judgeRevocations(of witness: Witness, since time: Int64) {
        guard !ledger.mayBusDiscard, !ledger.wasBusCrowded else { return }
        for registration in witness.registrations {
            guard let acknowledged = registration.acknowledged, registration.removed == nil,
                !ledger.wasStateLost(since: registration.asked),
                verdict(.observe, registration.name.map(Names.name), of: witness.client, since: time) == .refused
            else { continue }
            ledger.world.violate(
                "P3",
                "policy took the observer of \(registration.name.map(Names.name) ?? "any name") that \(witness.client) "
                    + "had since \(acknowledged) µs, and it was not told")
        }
    }
}
