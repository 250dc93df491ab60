// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A main context as delivery target: the work runs on the thread that runs the context, in some of its modes. The
/// target does not keep the context alive.
package struct ContextTarget: DeliveryTarget {
    /// The queue of the context, which all targets of the same context share.
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
