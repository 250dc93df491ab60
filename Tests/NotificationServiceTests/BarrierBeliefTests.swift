// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// What has been sent counts as carried when a barrier comes out that the service itself has sent, and by nothing that
/// anybody else does.
@Suite("E6: forged barriers", .limited)
struct BarrierBeliefTests {
    /// What a stranger sends for a barrier.
    enum Forgery: CaseIterable, Sendable {
        /// The same call, where barriers come out.
        case call
        case callOnMainConnection
        case callWithoutReply
        case signal
        /// An answer to the barrier that waits.
        case reply
        case error
        /// The barrier itself, which came out with another number.
        case otherNumber
        case otherType

        /// Whether it is from the service's own connection.
        var isOwn: Bool { self == .otherNumber || self == .otherType }
    }

    private static let interface: InterfaceName = "org.carillon.Internal1"

    private func forge(_ forgery: Forgery, like barrier: Message, _ number: UInt64, on stage: ServiceStage) {
        let stranger = stage.join()
        func call(_ body: (inout MessageWriter) -> Void) -> Message {
            let call = Message.methodCall(
                to: AnyBusName(stage.control.name), path: Wire.path, interface: Self.interface, member: "Barrier")
            var writer = MessageWriter(call)
            body(&writer)
            return call
        }
        switch forgery {
        case .call: stranger.send(call { $0.append(number) }, by: stage.control)
        case .callOnMainConnection: stranger.send(call { $0.append(number) })
        case .callWithoutReply:
            let call = call { $0.append(number) }
            call.expectsNoReply = true
            stranger.send(call, by: stage.control)
        case .signal:
            let signal = Message.signal(
                to: stage.control.name, path: Wire.path, interface: Self.interface, member: "Barrier")
            var writer = MessageWriter(signal)
            writer.append(number)
            stranger.send(signal, by: stage.control)
        case .reply: stranger.send(Message.forgedReply(to: stage.main.name, serial: barrier.serial))
        case .error:
            stranger.send(
                Message.errorReply(.failed("no"), to: stage.main.name, serial: barrier.serial))
        case .otherNumber:
            stage.control.arrive(
                call { $0.append(number + 1000) }.carried(from: AnyBusName(stage.main.name), serial: 9999))
        case .otherType:
            stage.control.arrive(
                call { $0.append("\(number)") }.carried(from: AnyBusName(stage.main.name), serial: 9999))
        }
        stage.settle()
    }

    /// The barriers that were sent, with their numbers.
    private func barriers(of stage: ServiceStage) -> [(message: Message, number: UInt64)] {
        stage.main.sent.filter { $0.member == "Barrier" }.compactMap { message in
            var reader = MessageReader(message)
            return (try? reader.read(UInt64.self)).map { (message, $0) }
        }
    }

    @Test(
        "A4, E6: a client is probed only after the service's own barrier, despite forged barriers",
        arguments: Forgery.allCases)
    func ping(forgery: Forgery) throws {
        let stage = try ServiceStage()
        let client = stage.join()
        client.reads = false
        stage.holdsBarriers = true
        try client.observe("Ding")
        stage.settle()
        let sent = barriers(of: stage)
        #expect(!sent.isEmpty)
        for (message, number) in sent { forge(forgery, like: message, number, on: stage) }
        #expect(client.unanswered.isEmpty, "it is not asked before the bus has carried what it is asked about")
        stage.holdsBarriers = false
        for (message, _) in sent {
            stage.control.arrive(message.carried(from: AnyBusName(stage.main.name), serial: message.serial))
        }
        stage.settle()
        #expect(client.unanswered.count == 1)
    }

    @Test(
        "E5, E6: possible losses are announced when the bus disconnects the service, despite forged barriers",
        arguments: Forgery.allCases)
    func losses(forgery: Forgery) throws {
        let stage = try ServiceStage()
        let (client, poster) = (stage.join(), stage.join())
        try client.observe("Ding")
        stage.settle()
        stage.holdsBarriers = true
        try poster.post("Ding")
        try poster.post("Ding")
        stage.settle()
        for (message, number) in barriers(of: stage) { forge(forgery, like: message, number, on: stage) }
        stage.holdsBarriers = false
        try stage.disconnect()
        try stage.run("it is told what it may have lost") { !client.dropped.isEmpty }
        #expect(client.dropped.map(\.count) == [2])
        #expect(client.dropped.map(\.reason) == ["bus-disconnected"])
    }

    @Test(
        "F2, E6: a channel counts as delivered only when the bus has carried the reply, despite forged barriers",
        arguments: Forgery.allCases)
    func channel(forgery: Forgery) throws {
        let stage = try ServiceStage()
        let (client, poster) = (stage.join(), stage.join())
        try client.observe("Ding")
        stage.settle()
        stage.holdsBarriers = true
        // The bus has not carried the answer with the channel in it.
        let channel = try client.openChannel()
        try poster.post("Ding")
        stage.settle()
        for (message, number) in barriers(of: stage) { forge(forgery, like: message, number, on: stage) }
        stage.holdsBarriers = false
        try stage.disconnect()
        try stage.run("it is told what it may have lost") { !client.dropped.isEmpty }
        #expect(client.dropped.map(\.count) == [1])
        _ = channel
    }
}
