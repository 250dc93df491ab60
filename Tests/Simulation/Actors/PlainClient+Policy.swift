// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What clients do that policy is asked about (P2).
extension PlainClient {
    func trespass(_ trespass: Trespass, others: [UniqueName]) {
        whenNamed { [unowned self] witness in
            // What concerns others it changes for nobody but where it may not.
            let isSandboxed = ledger.policy.isSandboxed(witness.client)
            switch trespass {
            case .followInterest where follower == nil: attempt(FollowInterest(most: 10), trespass)
            case .followValues where follower == nil: attempt(FollowValues(most: 10), trespass)
            case .reload: attempt(ReloadConfiguration(), trespass)
            case .override where isSandboxed:
                guard let other = others.first else { return }
                attempt(OverrideSuspension(of: other.rawValue, true), trespass)
            case .details where isSandboxed:
                attempt(SetClientOptions(ClientOptionsChange(details: [.processID, .user])), trespass)
            case .look: look(at: others)
            default: break
            }
        }
    }

    private func attempt<Method: CenterMethod>(_ method: Method, _ trespass: Trespass) {
        request(method) { [unowned self] result in
            guard let witness else { return }
            ledger.policy.judgeTrespass(trespass.rawValue, of: witness.client, result)
        }
    }

    private func look(at others: [UniqueName]) {
        list()
        for other in others.prefix(3) {
            ask(ListObservers(of: other.rawValue)) { [unowned self] observers in
                if let observers, !observers.isEmpty, let witness {
                    ledger.policy.judgeSight(of: witness.client, [other])
                }
            }
            ask(GetClient(other.rawValue)) { [unowned self] known in
                if known != nil, let witness { ledger.policy.judgeSight(of: witness.client, [other]) }
            }
        }
    }
}
