// SPDX-License-Identifier: Apache-2.0
import BusNames
import NotificationCore

/// A client of the service, from its joining to its end.
protocol Client: AnyObject {
    /// Nil before the bus has given it a name.
    var witness: Witness? { get }
    var isThere: Bool { get }

    /// - Parameters:
    ///   - values: whether it wants those that are kept (R2).
    ///   - interval: in milliseconds (R5); 0 for none.
    func observe(
        slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode, values: Bool,
        interval: UInt32)
    func unobserve(slot: Int)
    func removeAll(name: Int?)
    func post(_ plan: PostPlan)
    /// Nil takes its word back.
    func suspend(_ isSuspended: Bool?)
    func list()
    /// Asks for the values of a name (R3); nil means all.
    func read(name: Int?)
    /// Removes the values of a name (R6); nil means all.
    func forget(name: Int?)
    /// Takes back what it has queued of a name (Q3); nil means all.
    func withdraw(name: Int?)
    func leave(abruptly: Bool)
    func setStopped(_ isStopped: Bool)
    func setSlowness(_ factor: Int)
}

extension Client {
    func observe(slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode) {
        observe(slot: slot, name: name, object: object, behavior, mode, values: false, interval: 0)
    }
}
