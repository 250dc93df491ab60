// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The thread that runs a main context, in some of its modes. The target does not keep the context alive.
package struct ContextTarget: DeliveryTarget {
    package let delivery: ContextDelivery
    private let modes: ModeSet

    package init(_ context: MainContext, modes: Set<RunLoopMode>) {
        delivery = .to(context)
        self.modes = .of(modes)
    }

    package func deliver(byteCount: Int, _ work: @escaping @Sendable () -> Void) -> Int {
        delivery.deliver(byteCount: byteCount, in: modes, work)
    }
}
