// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// All that an application in a sandbox can find out about others: each method, signal and property of the introspection data
/// is tried. A new one fails here until somebody says how it is called.
@Suite("P1, P2: confidentiality of other clients towards a sandbox", .limited)
struct SandboxSightTests {
    private static let application = "org.example.App"
    private static let name = "org.example.App.Value"

    /// Texts and a number that only those have whom it may not see.
    private static let secrets = ["org.example.Secret", "app-org.example.Secret-1.scope", "secret-host", "secret-user"]
    private static let secretUser: UInt32 = 4_711_001

    /// A stage with somebody of the session who posts, observes, keeps values, has lost something, and brings something
    /// from elsewhere.
    private struct Scene {
        let stage: ServiceStage
        let secret: StageClient
        let sandbox: StageClient

        init() throws {
            stage = try ServiceStage()
            secret = stage.join(.init(unit: "app-org.example.Secret-1.scope", userID: SandboxSightTests.secretUser))
            sandbox = stage.join(.init(confinement: .sandbox(SandboxSightTests.application)))
            try secret.observe("")
            try sandbox.observe(SandboxSightTests.name)
            var options = PostOptions()
            options.retention = Retention()
            try secret.post(SandboxSightTests.name, "local", options: options)
            options.origin = try OutsideOrigin(host: "secret-host", user: "secret-user")
            try secret.post(SandboxSightTests.name, "foreign", options: options)
            stage.settle()
        }

        /// All that the sandbox is told when it calls this, also in signals.
        func told(by message: Message) throws -> [Message] {
            let before = sandbox.messages.count
            let serial = sandbox.send(message)
            try stage.run("an answer to \(message.member?.rawValue ?? "")") { sandbox.answer(to: serial) != nil }
            stage.settle()
            return Array(sandbox.messages[before...])
        }
    }

    /// Each method as the sandbox calls it, and as somebody who wants to know would.
    private static func calls(_ method: String, _ scene: Scene) throws -> [Message] {
        let (secret, any) = (scene.secret.name.rawValue, "")
        switch method {
        case "AddObserver":
            return [AddObserver(name: name, object: "").message(), AddObserver(name: "", object: "").message()]
        case "RemoveObserver": return [RemoveObserver(ObserverID(rawValue: 1)).message()]
        case "RemoveObservers": return [RemoveObservers(name: any, object: any).message()]
        case "Post":
            return try [PostCall(name: name).message(), PostCall(name: "com.example.Other").message()]
        case "PostJSON": return [PostJSON(name: name).message()]
        case "PostMany": return try [PostMany([PostCall(name: name)]).message()]
        case "SetSuspended": return [SetSuspended(true).message(), SetSuspended(false).message()]
        case "FollowActivity": return [FollowActivity().message()]
        case "OverrideSuspension": return [OverrideSuspension(of: secret, true).message()]
        case "ListClients": return [ListClients().message()]
        case "ListPosters": return [ListPosters(most: 100).message()]
        case "ListObservers": return [ListObservers(of: secret).message()]
        case "ListObserversFrom": return [ListObserversFrom(of: secret).message()]
        case "SetClientOptions":
            return [
                SetClientOptions(ClientOptionsChange(batches: true)).message(),
                SetClientOptions(ClientOptionsChange(details: [.userID, .application, .host])).message(),
            ]
        case "GetClient": return [GetClient(secret).message()]
        case "Explain": return [Explain(secret, name: name).message(), Explain(secret, name: any).message()]
        case "FollowInterest": return [FollowInterest().message()]
        case "FollowValues": return [FollowValues().message()]
        case "Get":
            return [
                Get(name: name).message(), Get(name: any).message(), Get(name: any, object: "foreign").message(),
            ]
        case "RemoveRetained": return [RemoveRetained(name: "com.example.Other").message()]
        case "RemoveRetainedFrom":
            return [RemoveRetainedFrom(host: "secret-host", user: "other", name: name, object: "foreign").message()]
        case "WithdrawPosts": return [WithdrawPosts(name: any).message()]
        case "OpenChannel": return [OpenChannel().message()]
        case "ReloadConfiguration": return [ReloadConfiguration().message()]
        default:
            Issue.record("\(method) is not known here: what does a sandbox learn by it?")
            return []
        }
    }

    private static func checkNothing(in messages: [Message], of what: String) {
        for message in messages {
            let bytes = Array(message.marshalledBody)
            let words = (message.error?.message).map { Array($0.utf8) } ?? []
            for secret in secrets.map({ Array($0.utf8) }) + [withUnsafeBytes(of: secretUser.littleEndian, Array.init)] {
                let isThere = (bytes + words).indices.contains { (bytes + words)[$0...].starts(with: secret) }
                #expect(!isThere, "\(what) tells of \(String(decoding: secret, as: UTF8.self)): \(message)")
            }
        }
    }

    /// The names of the elements of a kind in the introspection data of the service.
    private static func elements(_ kind: String, _ scene: Scene) throws -> [String] {
        let introspect = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Introspectable", member: "Introspect")
        var reader = MessageReader(try scene.sandbox.ask(introspect))
        let xml = try reader.readString()
        // That of the center only.
        let own = try #require(xml.components(after: "<interface name=\"\(Wire.interface.rawValue)\">"))
        return own.split(separator: "</interface>", maxSplits: 1)[0].split(separator: "<\(kind) name=\"").dropFirst()
            .map { String($0.prefix { $0 != "\"" }) }
    }

    @Test("No method reveals other clients to a sandbox, whether answered or refused")
    func methods() throws {
        let methods = try Self.elements("method", Scene())
        #expect(methods.count > 20)
        for method in methods {
            let scene = try Scene()
            for call in try Self.calls(method, scene) {
                Self.checkNothing(in: try scene.told(by: call), of: method)
            }
        }
    }

    @Test("No property reveals other clients to a sandbox")
    func properties() throws {
        let scene = try Scene()
        #expect(try Self.elements("property", scene).count > 5)
        Self.checkNothing(in: try scene.told(by: CenterProperties.getAll()), of: "GetAll")
    }

    @Test("No signal reveals the identity of other posters to a sandbox, and every signal of the interface is tested")
    func signals() throws {
        let scene = try Scene()
        let known = [
            "Notification", "Notifications", "Dropped", "SuspensionChanged",
            // To a poster, what an answer would have told.
            "PostsRefused",
            // To a sandbox, nobody sends these: it may not ask for what they tell of.
            "InterestChanged", "ValuesRemoved",
        ]
        #expect(try Self.elements("signal", scene).sorted() == known.sorted())
        let observe = AddObserver(name: Self.name, object: "", options: ObserverOptions(wantsRetained: true)).message()
        Self.checkNothing(in: try scene.told(by: observe), of: "Notification")
        let batches = SetClientOptions(ClientOptionsChange(batches: true)).message()
        var all = try scene.told(by: batches)
        all += try scene.told(by: SetSuspended(true).message())
        for _ in 0..<3 { try scene.secret.post(Self.name, "more") }
        all += try scene.told(by: SetSuspended(false).message())
        #expect(all.contains { $0.hasMember("Notifications") } && all.contains { $0.hasMember("SuspensionChanged") })
        Self.checkNothing(in: all, of: "signals")
    }
}

extension String {
    fileprivate func components(after text: String) -> String? {
        let parts = split(separator: text, maxSplits: 1)
        return parts.count == 2 ? String(parts[1]) : nil
    }
}
