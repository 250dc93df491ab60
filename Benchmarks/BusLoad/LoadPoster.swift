// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Posts at a rate, or as fast as it is answered.
final class LoadPoster: LoadClient {
    /// Every so many posts one is answered, and two may be unanswered, so that the bus is not flooded.
    private static let window: UInt64 = 64

    private let options: LoadOptions
    private let channel: any LoadChannel
    private let data: [UInt8]
    private var posted: UInt64 = 0
    private var unanswered = 0
    private var isEnding = false
    private var first: Int64 = 0
    private var processorTimeBefore: Int64 = 0
    private var clock: EventSource?

    init(_ options: LoadOptions, _ channel: any LoadChannel) throws(BusError) {
        self.options = options
        self.channel = channel
        data = [UInt8](repeating: 0x42, count: options.size)
        try super.init()
    }

    override func start() {
        processorTimeBefore = processorTime()
        first = now()
        guard options.rate > 0 else { return postWhatFits() }
        // A timer of a millisecond: what is due by then goes out, so the rate is kept even if it fires late.
        clock = .timer(milliseconds: 1, on: connection.context) { [unowned self] in
            let due = min(options.count, UInt64(now() - first) * options.rate / 1_000_000_000)
            while posted < due { postOne() }
            guard posted == options.count else { return .keep }
            endIfDone()
            return .remove
        }
    }

    private func postWhatFits() {
        while unanswered < 2, posted < options.count { postOne() }
        endIfDone()
    }

    private func endIfDone() {
        guard posted == options.count, unanswered == 0, !isEnding else { return }
        isEnding = true
        let last = now()
        channel.send(message(options.name + ".end"), on: connection) { [unowned self] error in
            if let error { fail(error) }
            printLine(
                "posted=\(posted) first-at=\(first) last-at=\(last) cpu-us=\(processorTime() - processorTimeBefore)")
            loop.quit()
        }
    }

    private func postOne() {
        let message = message(options.name)
        posted += 1
        let isAnswered = posted % Self.window == 0 && !options.isUnpaced
        guard isAnswered || posted == options.count else {
            return channel.send(message, on: connection)
        }
        unanswered += 1
        channel.send(message, on: connection) { [unowned self] error in
            if let error { fail(error) }
            unanswered -= 1
            if options.rate == 0 { postWhatFits() } else { endIfDone() }
        }
    }

    private func message(_ name: String) -> Message {
        let message = channel.post(name)
        var writer = MessageWriter(message)
        writer.array(of: "{sv}") { writer in
            writer.entry("number", Int64(posted))
            writer.entry("time", now())
            writer.dictEntry { writer in
                writer.append("data")
                writer.variant(of: "ay") { $0.append(fixedArray: data) }
            }
        }
        channel.finish(message)
        return message
    }
}

/// Calls the service twice: the bus may have to start it for the first call.
final class FirstCaller: LoadClient {
    private var times: [Int64] = []

    override func start() {
        let before = now()
        let post = CenterChannel().post("org.carillon.BusLoad.Call")
        var writer = MessageWriter(post)
        writer.array(of: "{sv}") { _ in }
        CenterChannel().finish(post)
        connection.call(post, timeout: .never) { [unowned self] result in
            if case .failure(let error) = result { fail(error) }
            times.append(now() - before)
            guard times.count == 2 else { return start() }
            printLine("first=\(times[0]) second=\(times[1])")
            loop.quit()
        }
    }
}
