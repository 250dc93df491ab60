// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonTestSupport
import CarillonWire

/// A bus that does what it is asked when a test says so, one thing after the other, as a bus does.
final class QuietBus: MessageBus {
    typealias Answer = Result<Message, BusError>

    struct Request {
        let message: Message
        /// Nil where no answer is wanted.
        let completion: ((Answer) -> Void)?

        var member: String { message.member?.rawValue ?? "" }
        /// The first argument.
        var text: String {
            var reader = MessageReader(message)
            return (try? reader.readString()) ?? ""
        }
    }

    let context: MainContext
    private let clock = StageClock()
    /// What it was asked and has not done, in its order.
    private(set) var waiting: [Request] = []

    init() {
        context = MainContext(clock: clock)
    }

    func send(_ message: Message) { waiting.append(Request(message: message, completion: nil)) }

    func call(_ message: Message, timeout _: ReplyTimeout, completion: @escaping (Answer) -> Void) {
        waiting.append(Request(message: message, completion: completion))
    }

    /// The first request, which is done now; nil when there is none.
    func next() -> Request? { waiting.isEmpty ? nil : waiting.removeFirst() }

    /// The first request of that kind, whatever waits before it.
    func next(_ member: String) -> Request? {
        waiting.firstIndex { $0.member == member }.map { waiting.remove(at: $0) }
    }

    /// Lets so much time pass.
    func pass(milliseconds: Int64) {
        let end = clock.microseconds + milliseconds * 1000
        while clock.goOn(until: end, { context.iterate(mayBlock: false) }) {}
        clock.microseconds = end
    }

    /// An answer without anything in it.
    static var done: Message { Wire.methodCall("Done") }
}
