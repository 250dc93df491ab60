// SPDX-License-Identifier: Apache-2.0
/// How much of what a simulation has. They are a part of what a seed means.
public struct Dials: Equatable, Sendable {
    /// How many clients there may be at a time.
    public var clients = 10
    /// How long things are done, in virtual seconds; calm follows.
    public var seconds = 20
    /// Faults of the service's process, the bus, the disk and clients' processes, from 0 for none.
    public var faults = 1.0
    /// Steps in a virtual second, of all clients together.
    public var rate = 12
    /// In how many runs somebody besieges or floods the service, from 0 for none.
    public var hostility = 1.0
    /// In how many runs there are channels, from 0 for none.
    public var channels = 1.0
    /// In how many runs there are values that stay, from 0 for none.
    public var values = 1.0
    /// In how many runs there are posts that wait for the exit of who posts them, from 0 for none.
    public var exits = 1.0
    /// In how many runs there are observers with minimum intervals, from 0 for none.
    public var intervals = 1.0
    /// In how many runs something comes from outside of the session, from 0 for none.
    public var outside = 1.0
    /// In how many runs posts of many kinds go together in one call, from 0 for none.
    public var batches = 1.0
    /// In how many runs policy concerns somebody, from 0 for none.
    public var policy = 1.0
    /// In how many runs the bus does badly by the service's own calls, from 0 for none.
    public var probes = 1.0
    /// In how many runs there are values for a short time, from 0 for none.
    public var expiry = 1.0
    /// In how many runs single bits of the log change, from 0 for none.
    public var damage = 1.0
    /// In how many runs applications become inactive, or others say that a client is suspended, from 0 for none.
    public var activity = 1.0
    /// In how many runs there are other sessions of the machine, from 0 for none.
    public var sessions = 1.0
    /// In how many runs there are moments that hardly ever come by themselves, from 0 for none.
    public var moments = 1.0
    /// What is wrong with the simulation itself.
    public var sabotage: Sabotage?

    public init() {}

    /// Those that say in how many runs there is something, by the names of their options.
    public static var shares: [(name: String, dial: WritableKeyPath<Dials, Double>)] {
        [
            ("hostility", \.hostility), ("channels", \.channels), ("values", \.values), ("exits", \.exits),
            ("intervals", \.intervals), ("outside", \.outside), ("batches", \.batches),
            ("policy", \.policy), ("probes", \.probes), ("expiry", \.expiry), ("damage", \.damage),
            ("activity", \.activity), ("sessions", \.sessions), ("moments", \.moments),
        ]
    }

    /// Those that are not the standard ones, as options of `tools/simulate`: what has to stand beside a seed.
    public var options: String {
        let standard = Dials()
        var options = ""
        func add<Value: Equatable>(_ name: String, _ value: Value, unless other: Value) {
            if value != other { options += " --\(name) \(value)" }
        }
        add("clients", clients, unless: standard.clients)
        add("seconds", seconds, unless: standard.seconds)
        add("faults", faults, unless: standard.faults)
        add("rate", rate, unless: standard.rate)
        for (name, share) in Self.shares { add(name, self[keyPath: share], unless: standard[keyPath: share]) }
        if let sabotage { options += " --sabotage \(sabotage.rawValue)" }
        return options
    }
}

/// What no bus does, so that the search has a failure to find, in any build: for its own tests.
public enum Sabotage: String, Sendable, CaseIterable {
    /// The bus loses some of the notifications that it carries, and nobody is told.
    case lostSignals = "lost-signals"
    /// An event may take four steps, which each post to a few observers takes.
    case smallBudget = "small-budget"
}
