// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import Testing

@Suite("D-Bus messages", .limited)
struct MessageTests {
    @Test("A method call has its header fields, and no reply flag until it is set")
    func methodCall() {
        let message = Message.methodCall(
            to: "org.example.Bell", path: "/bell", interface: "org.example.Bell", member: "Ring")
        #expect(message.kind == .methodCall)
        #expect(message.destination == "org.example.Bell")
        #expect(message.path == "/bell")
        #expect(message.interface == "org.example.Bell")
        #expect(message.member == "Ring")
        #expect(message.sender == nil && message.errorName == nil && message.error == nil)
        #expect(message.signature == "" && message.hasSignature(""))
        #expect(message.hasPath("/bell") && !message.hasPath("/bel"))
        #expect(message.hasInterface("org.example.Bell") && !message.hasInterface("org.example.Bel"))
        #expect(!message.expectsNoReply)
        message.expectsNoReply = true
        #expect(message.expectsNoReply)
    }

    @Test("A signal is a broadcast, or is addressed to one connection")
    func signal() {
        let message = Sample.signal("Rang")
        #expect(message.kind == .signal)
        #expect(message.destination == nil)
        #expect(message.isSignal(Sample.interface, "Rang"))
        #expect(!message.isSignal(Sample.interface, "Ran"))
        #expect(!message.isSignal("org.example.Bel", "Rang"))
        #expect(Sample.signal("Rang", to: ":1.7").destination == ":1.7")
        let call = Message.methodCall(to: "a.b", path: "/", interface: Sample.interface, member: "Rang")
        #expect(!call.isSignal(Sample.interface, "Rang"))
    }

    @Test("A reader keeps its message alive")
    func readerOwnsMessage() throws {
        func makeReader() -> MessageReader { MessageReader(Sample.signal { $0.append("still there") }) }
        var reader = makeReader()
        #expect(try reader.readString() == "still there")
    }
}
