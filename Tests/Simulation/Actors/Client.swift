// SPDX-License-Identifier: Apache-2.0
import BusNames
import NotificationCore
import NotificationWire

/// A client of the service, from its joining to its end.
protocol Client: AnyObject {
    /// Nil before the bus has given it a name.
    var witness: Witness? { get }
    var isThere: Bool { get }
    var ledger: Ledger { get }

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
    func leave(abruptly: Bool)
    func setStopped(_ isStopped: Bool)
    func setSlowness(_ factor: Int)

    /// At once, or when the bus has given it a name.
    func whenNamed(_ body: @escaping (Witness) -> Void)
    /// Calls a method of the service.
    ///
    /// - Parameter completion: gets nil where no answer comes, or an error.
    func ask<Method: CenterMethod>(_ method: Method, _ completion: @escaping (Method.Reply?) -> Void)
}

extension Client {
    func observe(slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode) {
        observe(slot: slot, name: name, object: object, behavior, mode, values: false, interval: 0)
    }

    /// Asks for the values of a name (R3); nil means all.
    func read(name: Int?) {
        whenNamed { [unowned self] _ in
            let asked = ledger.world.now
            ask(Get(name: name.map(Names.name) ?? "")) { [ledger] values in
                guard let values else { return }
                ledger.values.judge(values.map { Ledger.number(of: $0.userInfo) }, of: name, asked: asked)
            }
        }
    }

    /// Removes the values of a name (R6); nil means all.
    func forget(name: Int?) {
        whenNamed { [unowned self] _ in
            let removal = ledger.values.remove(name)
            ask(RemoveRetained(name: name.map(Names.name) ?? "")) { [ledger] count in
                if count != nil { ledger.values.acknowledgeRemoval(removal) }
            }
        }
    }

    /// Takes back what it has queued of a name (Q3); nil means all.
    func withdraw(name: Int?) {
        whenNamed { [unowned self] witness in
            let withdrawal = ledger.withdraw(name, of: witness.client)
            ask(WithdrawPosts(name: name.map(Names.name) ?? "")) { [ledger] count in
                if count != nil { ledger.acknowledgeWithdrawal(withdrawal) }
            }
        }
    }
}
