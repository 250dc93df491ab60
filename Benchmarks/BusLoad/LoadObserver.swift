// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Counts what arrives, and looks whether it is what has to arrive.
final class LoadObserver: LoadClient {
    private let options: LoadOptions
    private let channel: any LoadChannel
    private var received: UInt64 = 0
    private var dropped: UInt64 = 0
    private var sequence: UInt64 = 0
    private var serial: UInt64 = 0
    private var number: Int64 = -1
    private var faults = 0
    private var latencies: [Int64] = []
    private var first: Int64 = 0
    private var last: Int64 = 0
    private var processorTimeBefore: Int64 = 0
    private var patience: EventSource?
    private var countAtLastLook: UInt64 = 0

    init(_ options: LoadOptions, _ channel: any LoadChannel) throws(BusError) {
        self.options = options
        self.channel = channel
        try super.init()
    }

    override func start() {
        connection.onMessage = { [unowned self] message in handle(message) }
        let names = (0..<options.others).map { "\(options.name).other\($0)" } + [options.name, options.name + ".end"]
        register(names[...])
        if options.stopsAtOnce {
            // libdbus writes at once as long as the socket takes it.
            guard connection.outgoingBytes == 0 else { fail(.failed("the registration could not be written at once")) }
            raise(SIGSTOP)
        }
    }

    /// A few at a time, so that thousands are neither slow nor a flood.
    private func register(_ names: ArraySlice<String>) {
        let batch = names.prefix(256)
        var missing = batch.count
        for name in batch {
            channel.register(name, options, on: connection) { [unowned self] error in
                if let error { fail(error) }
                missing -= 1
                guard missing == 0 else { return }
                let rest = names.dropFirst(256)
                if rest.isEmpty { isReady() } else { register(rest) }
            }
        }
    }

    private func isReady() {
        processorTimeBefore = processorTime()
        printLine("ready \(connection.uniqueName!)")
        guard options.patience > 0 else { return }
        patience = .timer(milliseconds: options.patience, on: connection.context) { [unowned self] in
            guard received > 0, received == countAtLastLook else {
                countAtLastLook = received
                return .keep
            }
            report()
            return .remove
        }
    }

    private func handle(_ message: Message) -> Bool {
        switch channel.arrival(message) {
        case nil: return false
        case .dropped(let count):
            dropped += count
            sequence += count
        case .notification(let name, let userInfo, let sequence, let serial):
            if let sequence, let serial {
                self.sequence += 1
                if sequence != self.sequence || serial <= self.serial { faults += 1 }
                self.sequence = sequence
                self.serial = serial
            }
            if name == options.name { take(userInfo) } else { report() }
        }
        return true
    }

    private func take(_ userInfo: MessageReader) {
        last = now()
        if received == 0 { first = last }
        received += 1
        var userInfo = userInfo
        guard var entries = try? userInfo.readContainer(.array), let next = integer(&entries),
            let posted = integer(&entries)
        else {
            faults += 1
            return
        }
        if next <= number { faults += 1 }
        number = next
        if options.rate > 0 { latencies.append(last - posted) }
    }

    /// The value of the next entry, an `x`.
    private func integer(_ entries: inout MessageReader) -> Int64? {
        guard var entry = try? entries.readContainer(.dictEntry) else { return nil }
        entry.skip()
        guard var value = try? entry.readContainer(.variant) else { return nil }
        return try? value.read(Int64.self)
    }

    private func report() {
        latencies.sort()
        func percentile(_ percent: Int) -> Int64 {
            latencies.isEmpty ? 0 : latencies[min(latencies.count - 1, latencies.count * percent / 100)]
        }
        printLine(
            "received=\(received) dropped=\(dropped) sequence=\(sequence) last=\(number) faults=\(faults) "
                + "first-at=\(first) last-at=\(last) cpu-us=\(processorTime() - processorTimeBefore) "
                + "p50=\(percentile(50)) p99=\(percentile(99)) max=\(latencies.last ?? 0)")
        loop.quit()
    }
}
