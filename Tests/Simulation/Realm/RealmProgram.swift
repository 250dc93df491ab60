// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A program on a machine of a realm, with the Swift library's engine: it observes, or it posts.
final class RealmProgram {
    struct Receipt {
        let name: String
        let object: String
        let number: Int?
        /// Nil for its own machine.
        let host: String?
        let userInfo: [String: PropertyList]
        /// Whether it is a value that there was before.
        let isReplayed: Bool
    }

    let host: RealmHost
    private let world: World
    private let process: LoopProcess
    private let sessionBus: ProcessBus
    private let outbox = SharedOutbox()
    private var session: ServiceSession!
    private var isThere = true
    /// Notifications that it was told it has not got.
    private(set) var missed = 0
    var onReceipt: ((Receipt) -> Void)?

    init(on host: RealmHost, _ world: World, processID: UInt32) {
        self.host = host
        self.world = world
        process = LoopProcess(world, id: processID, name: "program of \(host.name)")
        sessionBus = ProcessBus(host.bus, host.streams, process)
        session = ServiceSession(bus: sessionBus, outbox: outbox, receiver: Receiver(self))
        ask(.details([.host, .user, .retained]))
        process.perform { session.start() }
    }

    func observe(_ name: String, values: Bool) {
        let options = ObserverOptions(
            suspensionBehavior: .deliverImmediately, automaticSuspension: false, wantsRetained: values)
        ask(.register(RegistrationKey(name: ExactText(name), object: nil, options: options)))
    }

    /// - Parameter done: gets whether it was accepted, where somebody said so.
    func post(
        _ name: String, object: String, number: Int, retention: Retention? = nil, _ done: @escaping (Bool) -> Void
    ) {
        var options = PostOptions()
        options.retention = retention
        let box = Unchecked(done)
        let post = try? OutgoingPost(
            name: name, object: object, userInfo: ["n": .int64(Int64(number))], options: options
        ) { result in
            if case .success = result { box.value(true) } else { box.value(false) }
        }
        if let post { ask(.post(post)) }
    }

    func removeValue(_ name: String, object: String) {
        ask(.call(RemoveRetained(name: name, object: object)) { _ in })
    }

    /// All values that its session has; nil where nobody says.
    func values(_ done: @escaping ([RetainedValueInfo]?) -> Void) {
        let box = Unchecked(done)
        ask(.call(Get(name: "")) { result in box.value(try? result.get()) })
    }

    func leave() {
        guard isThere else { return }
        isThere = false
        sessionBus.close(losing: true)
        process.onDeath = { [self] in session = nil }
        process.kill()
    }

    private func ask(_ request: Request) {
        guard isThere else { return }
        process.perform {
            _ = try? outbox.append(request)
            session.pump()
        }
    }

    private final class Receiver: ServiceReceiver, @unchecked Sendable {
        // Sendable: a simulation has one thread.
        private unowned let program: RealmProgram

        init(_ program: RealmProgram) {
            self.program = program
        }

        func received(_ notification: ArrivedNotification, for _: [RegistrationKey]) {
            let (userInfo, details) = (notification.userInfo.decoded(), notification.details?.decoded() ?? [:])
            var host: String?
            if case .string(let text)? = details["host"] { host = text }
            var number: Int?
            if case .int64(let value)? = userInfo["n"] { number = Int(value) }
            program.onReceipt?(
                Receipt(
                    name: notification.name, object: notification.object, number: number, host: host,
                    userInfo: userInfo, isReplayed: details["retained"] != nil))
        }

        func mayHaveMissed(_ gap: Gap) {
            switch gap {
            case .dropped(let count, _), .missing(let count), .overflow(let count): program.missed += Int(count)
            case .undecodable(let text): program.world.violate("D7", "a signal that nobody can read: \(text)")
            case .serviceChanged: break
            }
        }

        func lostPosts(_ count: Int, because error: ServiceError) {}
        func stateChanged(_ state: ConnectionState) {}
        func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
            program.world.violate("D2", "a registration was refused: \(error)")
        }
        func detailsRefused(because error: ServiceError) {
            program.world.violate("P1", "details were refused: \(error)")
        }
        func suspensionChanged(_: Bool, cause _: String) {}
    }
}
