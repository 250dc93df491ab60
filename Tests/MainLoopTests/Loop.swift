import MainLoop
import TestSupport

extension MainContext {
    /// Runs this context until `condition` holds.
    ///
    /// - Throws: ``NotInTime``.
    func run(_ what: String, until condition: () -> Bool) throws {
        var isLate = false
        let timer = EventSource.timer(milliseconds: 90_000, on: self) {
            isLate = true
            return .remove
        }
        while !condition() {
            guard !isLate else { throw NotInTime(what) }
            iterate(mayBlock: true)
        }
        withExtendedLifetime(timer) {}
    }

    /// Dispatches what is ready, without waiting.
    func settle() {
        while iterate(mayBlock: false) {}
    }
}
