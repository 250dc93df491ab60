// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

extension MainContext {
    /// Runs this context on the calling thread until `condition` holds.
    ///
    /// - Parameters:
    ///   - what: names the condition in the error.
    ///   - progress: how much has come of what is waited for; the time begins anew when it grows.
    /// - Throws: ``NotInTime``, and what `condition` throws.
    public func run(
        _ what: @autoclosure () -> String, within patience: Patience = .event, progress: (() -> Int)? = nil,
        until condition: () throws -> Bool
    ) throws {
        var wait = Wait(patience)
        var come = progress?() ?? 0
        // So that it is looked at each second, also when nothing comes.
        let looks = EventSource.timer(milliseconds: 1000, on: self) { .keep }
        while try !condition() {
            if let now = progress?(), now > come {
                come = now
                wait.goOn()
            }
            try wait.look(for: what())
            iterate(mayBlock: true)
        }
        withExtendedLifetime(looks) {}
    }
}

extension EventLoop {
    /// Runs until it is told to quit.
    ///
    /// - Parameter context: the loop's own.
    /// - Throws: ``NotInTime`` when nobody tells it.
    public func run(on context: MainContext, waitingFor what: String, within patience: Patience = .event) throws {
        var end: String?
        var wait = Wait(patience)
        let looks = EventSource.timer(milliseconds: 1000, on: context) { [self] in
            end = wait.end()
            if end != nil { quit() }
            return .keep
        }
        run()
        withExtendedLifetime(looks) {}
        if let end { throw NotInTime("\(end): \(what)") }
    }
}
