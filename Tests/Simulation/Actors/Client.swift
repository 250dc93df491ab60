import BusNames
import NotificationCore

/// A client of the service, from its joining to its end.
protocol Client: AnyObject {
    /// Nil before the bus has given it a name.
    var witness: Witness? { get }
    var isThere: Bool { get }

    func observe(slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode)
    func unobserve(slot: Int)
    func removeAll(name: Int?)
    func post(_ plan: PostPlan)
    /// Nil takes its word back.
    func suspend(_ isSuspended: Bool?)
    func list()
    func leave(abruptly: Bool)
    func setStopped(_ isStopped: Bool)
    func setSlowness(_ factor: Int)
}
