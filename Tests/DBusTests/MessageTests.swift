import DBus
import Testing

@Suite("D-Bus messages", .timeLimit(.minutes(20)))
struct MessageTests {
    @Test("A method call has its header fields")
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

    @Test("A signal is a broadcast until it has a destination, which can be taken away again")
    func signal() {
        let message = Sample.signal("Rang")
        #expect(message.kind == .signal)
        #expect(message.destination == nil)
        #expect(message.isSignal(Sample.interface, "Rang"))
        #expect(!message.isSignal(Sample.interface, "Ran"))
        #expect(!message.isSignal("org.example.Bel", "Rang"))
        message.destination = ":1.7"
        #expect(message.destination == ":1.7")
        message.destination = nil
        #expect(message.destination == nil)
        let call = Message.methodCall(to: "a.b", path: "/", interface: Sample.interface, member: "Rang")
        #expect(!call.isSignal(Sample.interface, "Rang"))
    }

    @Test("A copy has the header and the body, and can be changed apart")
    func copy() throws {
        let message = Sample.signal(to: ":1.7") { $0.append("body") }
        let copy = message.copy()
        copy.destination = ":1.8"
        var writer = MessageWriter(copy)
        writer.append(UInt8(1))
        #expect(message.destination == ":1.7")
        #expect(message.signature == "s")
        #expect(copy.signature == "sy")
        var reader = MessageReader(copy)
        #expect(try reader.readString() == "body")
        #expect(try reader.read(UInt8.self) == 1)
    }

    @Test("A reader keeps its message alive")
    func readerOwnsMessage() throws {
        func makeReader() -> MessageReader { MessageReader(Sample.signal { $0.append("still there") }) }
        var reader = makeReader()
        #expect(try reader.readString() == "still there")
    }
}
