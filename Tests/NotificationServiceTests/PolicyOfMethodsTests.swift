// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// What policy is asked by each method that concerns more than its caller (P2, P3). Posts have ``WaysOfPostingTests``.
@Suite("P2, G3, G4, G5: methods that a sandbox may call", .limited)
struct PolicyOfMethodsTests {
    /// A call, and what it is about.
    struct Call: Sendable, CustomTestStringConvertible {
        let what: String
        let message: @Sendable () -> Message

        init(_ what: String, _ method: @escaping @Sendable () -> some CenterMethod) {
            self.what = what
            message = { method().message() }
        }

        var testDescription: String { what }
    }

    /// The calls about a name; empty for any.
    static func calls(about name: String) -> [Call] {
        [
            Call("observe '\(name)'") { AddObserver(name: name, object: "") },
            Call("monitor '\(name)'") {
                AddObserver(name: name, object: "", options: ObserverOptions(isMonitor: true))
            },
            Call("observe values of '\(name)'") {
                AddObserver(name: name, object: "x", options: ObserverOptions(wantsRetained: true))
            },
            Call("read '\(name)'") { Get(name: name) },
            Call("read one of '\(name)'") { Get(name: name, object: "x") },
            Call("remove '\(name)'") { RemoveRetained(name: name) },
            Call("remove one of '\(name)'") { RemoveRetained(name: name, object: "x") },
        ]
    }

    private static func removal(_ name: String) -> Call {
        Call("remove '\(name)' of a place") { RemoveRetainedFrom(host: "alpha", user: "anna", name: name, object: "") }
    }

    private static let others =
        Detail.allCases.filter(\.isAboutPoster).map { detail in
            Call("be told \(detail.rawValue)") { SetClientOptions(ClientOptionsChange(details: Details(detail))) }
        } + [
            Call("override") { OverrideSuspension(of: ":1.4711", true) },
            Call("stop overriding") { OverrideSuspension(of: ":1.4711", nil) },
            Call("follow interest") { FollowInterest() },
            Call("follow interest further") { FollowInterest(after: "Ding") },
            Call("follow values") { FollowValues() },
            Call("follow values further") { FollowValues(after: 7) },
            Call("reload") { ReloadConfiguration() },
        ]

    static let foreign =
        ["", "Ding", "org.example.BoxedDing", "org.example", "org.example.Open"].flatMap(calls)
        + ["Ding", "org.example.BoxedDing"].map(removal) + others

    static let own =
        ["org.example.Boxed", "org.example.Boxed.Ding", "org.example.Open.Ding"].flatMap {
            calls(about: $0) + [removal($0)]
        }
        + Detail.allCases.filter { !$0.isAboutPoster }.map { detail in
            Call("be told \(detail.rawValue)") { SetClientOptions(ClientOptionsChange(details: Details(detail))) }
        } + [
            Call("batches") { SetClientOptions(ClientOptionsChange(batches: true)) },
            Call("list") { ListClients() }, Call("suspend") { SetSuspended(true) },
            Call("withdraw") { WithdrawPosts(name: "") },
        ]

    /// The error of a call; nil where it is served.
    private func error(_ call: Call, of process: ServiceStage.Process) throws -> BusError? {
        let stage = try ServiceStage { configuration in
            configuration.policy.openNames = [.below("org.example.Open.")]
            configuration.policy.unidentified = .refuse
        }
        do {
            _ = try stage.join(process).ask(call.message())
            return nil
        } catch let error as BusError { return error }
    }

    @Test(
        "P2: calls that concern other clients are refused only to sandboxes and unidentified callers",
        arguments: foreign)
    func isRefused(call: Call) throws {
        for process in [
            ServiceStage.Process(confinement: .sandbox("org.example.Boxed")), .init(confinement: .unknown),
        ] {
            let error = try error(call, of: process)
            #expect(error?.centerError == .notAllowed, "\(String(describing: error))")
            #expect(error?.message.contains("may not") == true)
        }
        #expect(try error(call, of: .init())?.centerError != .notAllowed)
    }

    @Test("P2: a sandbox may make calls that concern only itself or open names", arguments: own)
    func isServed(call: Call) throws {
        #expect(try error(call, of: .init(confinement: .sandbox("org.example.Boxed"))) == nil)
        #expect(try error(call, of: .init()) == nil)
    }
}
