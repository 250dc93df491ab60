// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// A client of the service, from its joining to its end.
protocol Client: AnyObject {
    /// Nil before the bus has given it a name.
    var witness: Witness? { get }
    var isThere: Bool { get }
    var ledger: Ledger { get }
    /// Nil where it follows nothing.
    var follower: Follower? { get }

    /// - Parameters:
    ///   - values: whether it wants those that are kept (R2).
    ///   - interval: in milliseconds (R5); 0 for none.
    func observe(
        slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode, values: Bool,
        interval: UInt32)
    func unobserve(slot: Int)
    func removeAll(name: Int?)
    func post(_ plan: PostPlan)
    /// What belongs together: in one call, or as its library has it (F1).
    func postMany(_ plans: [PostPlan])
    /// Nil takes its word back.
    func suspend(_ isSuspended: Bool?)
    func list()
    func leave(abruptly: Bool)
    func setStopped(_ isStopped: Bool)
    func setSlowness(_ factor: Int)

    /// At once, or when the bus has given it a name.
    func whenNamed(_ body: @escaping (Witness) -> Void)
    /// Calls a method of the service.
    func request<Method: CenterMethod>(
        _ method: Method, _ completion: @escaping (Result<Method.Reply, BusError>) -> Void)
}

extension Client {
    /// Calls a method of the service.
    ///
    /// - Parameter completion: gets nil where no answer comes, or an error.
    func ask<Method: CenterMethod>(_ method: Method, _ completion: @escaping (Method.Reply?) -> Void) {
        request(method) { completion(try? $0.get()) }
    }

    func observe(slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode) {
        observe(slot: slot, name: name, object: object, behavior, mode, values: false, interval: 0)
    }

    /// Asks for the values of a name (R3); nil means all.
    func read(name: Int?) {
        whenNamed { [unowned self] witness in
            let asked = ledger.world.now
            request(Get(name: name.map(Names.name) ?? "")) { [ledger] result in
                ledger.policy.judge(.observe, name, of: witness.client, asked: asked, result)
                guard let values = try? result.get() else { return }
                let numbers = values.map { Ledger.number(of: $0.userInfo) }
                ledger.values.judge(numbers, of: name, asked: asked)
                // P1: a sandbox is told nothing of posters, and nor is whoever may be in one.
                let mayOmit = ledger.policy.areSandboxesThere
                let isSandboxed = ledger.policy.isSandboxed(witness.client)
                for case (let number?, let value) in zip(numbers, values) where number < ledger.posts.count {
                    let origin = OutsideOrigin.from(host: value.host, user: value.user)
                    ledger.judgeOrigin(origin, of: number, mayOmit: mayOmit)
                    if isSandboxed, origin != nil {
                        ledger.world.violate("P1", "a sandbox is told who posted \(number)")
                    }
                }
            }
        }
    }

    /// Removes the values of a name (R6); nil means all.
    func forget(name: Int?) {
        whenNamed { [unowned self] witness in
            let removal = ledger.values.remove(name)
            let asked = ledger.world.now
            request(RemoveRetained(name: name.map(Names.name) ?? "")) { [ledger] result in
                ledger.policy.judge(.post, name, of: witness.client, asked: asked, result)
                if case .success = result { ledger.values.acknowledgeRemoval(removal) }
            }
        }
    }

    /// Removes the value of a kind, and no other (G3).
    func forget(only kind: ValueKind) {
        whenNamed { [unowned self] witness in
            let removal = ledger.values.remove(only: kind)
            let asked = ledger.world.now
            let method = RemoveRetainedFrom(
                host: kind.origin?.host ?? "", user: kind.origin?.user ?? "", name: Names.name(kind.name),
                object: kind.object.map(Names.object) ?? "")
            request(method) { [ledger] result in
                ledger.policy.judge(.post, kind.name, of: witness.client, asked: asked, result)
                guard let count = try? result.get() else { return }
                ledger.values.acknowledgeRemoval(removal)
                ledger.values.judgeRemoval(removal, of: kind, count: count)
            }
        }
    }

    /// Says that another client is suspended, or not, whatever that says itself (B3); nil takes it back.
    func override(_ isSuspended: Bool?, of other: Witness) {
        whenNamed { [unowned self] witness in
            guard !ledger.policy.isSandboxed(witness.client) else { return }
            let number = other.outside.override(isSuspended, at: ledger.world.now)
            request(OverrideSuspension(of: other.client.rawValue, isSuspended)) { [ledger] result in
                switch result {
                case .success: other.outside.acknowledge(number, at: ledger.world.now)
                // Who has no observers has nothing to suspend.
                case .failure(let error) where error.name == BusError.nameHasNoOwnerName: other.outside.refuse(number)
                case .failure: break
                }
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
