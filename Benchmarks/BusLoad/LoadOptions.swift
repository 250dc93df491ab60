// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The command line of `carillon-bus-load`.
struct LoadOptions {
    enum Role: String, CaseIterable {
        /// Registers for NAME and NAME.end, prints `ready UNIQUE-NAME`, and reads until NAME.end arrives.
        case observe
        /// Posts NAME, then NAME.end once.
        case post
        /// Calls the service twice and prints how long each call took: the first may have to start it.
        case call
        /// Owns the bus name NAME, prints `ready UNIQUE-NAME`, and only reads: what wants an answer gets a zero.
        case sink
    }

    var role = Role.call
    var name = ""
    /// Raw D-Bus signals and match rules instead of the notification center: the peer of the benchmarks.
    var isBroadcast = false
    var behavior = SuspensionBehavior.coalesce
    /// Stop this process (SIGSTOP) when the registration is on its way, before anything that comes back is read.
    var stopsAtOnce = false
    /// Registrations for other names, before the one that counts.
    var others = 0
    var count: UInt64 = 1000
    var size = 300
    /// Posts in a second; 0 is as many as are answered.
    var rate: UInt64 = 0
    /// Only the last post is answered: nothing slows the poster down.
    var isUnpaced = false
    /// Milliseconds without a delivery after which an observer gives up waiting for the end; 0 waits for ever.
    var patience: UInt32 = 0

    init(_ arguments: [String]) throws(CommandLineParser.UsageError) {
        let parser = CommandLineParser(
            program: "carillon-bus-load", usage: "observe|post|sink NAME, or call",
            summary: "One side of a load on a message bus, for tests and benchmarks.",
            description: """
                An observer's report is one line of key=value: what it received, what it was told is lost, whether \
                sequence, serial and the poster's numbers are in order without a hole that was not announced (faults), \
                and times in nanoseconds. A poster's has its times.
                """)
        let broadcast = parser.flag("broadcast", help: "Use raw D-Bus signals, without the notification center")
        let stop = parser.flag("stop", help: "Stop this process before it reads anything after its registration")
        let unpaced = parser.flag("unpaced", help: "Post all at once, without waiting for any answer")
        func text(_ name: String, _ placeholder: String, _ help: String) -> CommandLineParser.Option<String?> {
            parser.string(name, placeholder: placeholder, help: help)
        }
        let behavior = text("behavior", "NAME", "What to do with notifications while suspended")
        let others = text("others", "N", "First register for N other names")
        let count = text("count", "N", "How many to post")
        let size = text("size", "BYTES", "The data in each")
        let rate = text("rate", "N", "How many to post in a second")
        let patience = text("patience", "MS", "How long to wait for the next delivery")
        let rest = try parser.parse(arguments)

        func number<Number: FixedWidthInteger>(
            _ option: CommandLineParser.Option<String?>, or standard: Number
        ) throws(CommandLineParser.UsageError) -> Number {
            guard let text = parser.value(option) else { return standard }
            guard let value = Number(text) else { throw CommandLineParser.UsageError("'\(text)' is no number") }
            return value
        }
        guard let role = rest.first.flatMap(Role.init), rest.count == (role == .call ? 1 : 2) else {
            throw CommandLineParser.UsageError("expected observe NAME, post NAME, sink NAME, or call")
        }
        self.role = role
        name = rest.last ?? ""
        isBroadcast = parser.value(broadcast)
        isUnpaced = parser.value(unpaced)
        stopsAtOnce = parser.value(stop)
        if let text = parser.value(behavior) {
            guard let behavior = SuspensionBehavior(rawValue: text) else {
                throw CommandLineParser.UsageError("--behavior: '\(text)' is none")
            }
            self.behavior = behavior
        }
        self.others = try number(others, or: self.others)
        self.count = try number(count, or: self.count)
        self.size = try number(size, or: self.size)
        self.rate = try number(rate, or: self.rate)
        self.patience = try number(patience, or: self.patience)
    }
}
