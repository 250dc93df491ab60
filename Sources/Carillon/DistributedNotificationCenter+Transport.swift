// SPDX-License-Identifier: Apache-2.0
import CarillonClient

/// The way that notifications take (F2).
extension DistributedNotificationCenter {
    /// The way that notifications take between the program and the service.
    public typealias Transport = CarillonClient.Transport

    /// The way that posts and notifications of this center shall take; by default `.bus`.
    ///
    /// A **channel** is a socket that the program has with the service alone. What goes over it is the same as on the
    /// bus, in the same order, under the same limits and the same policy, and costs a fraction; but the bus and its
    /// monitors, such as `dbus-monitor`, don't see it. So a program, or its user, has to ask for it:
    ///
    /// ```swift
    /// let center = DistributedNotificationCenter.default()
    /// center.transport = .channel
    /// ```
    ///
    /// The best time is before anything is observed or posted. At any other time the center changes over by itself, and
    /// nothing is lost or overtaken by it. Where there is no channel, as the service is an older one, or its
    /// configuration has `channels = false`, everything goes over the bus, and a channel is asked for again later; so it
    /// does when a channel ends. ``transportInUse`` tells. Posts that were on their way on a channel that ends may have
    /// been made or not: those are reported as failed (``Event/postFailed(_:)``), not sent again.
    ///
    /// The environment variable `CARILLON_TRANSPORT`, `bus` or `channel`, is the word of whoever runs the program. It
    /// counts more than the program's, for all its centers; what is set here has no effect then, and is not what is read.
    ///
    /// Threads: any.
    public var transport: Transport {
        get { link.transport.value }
        set { link.wish(newValue) }
    }

    /// The way that posts and notifications take now.
    ///
    /// Threads: any.
    public var transportInUse: Transport { state.withLock { $0.transport } }
}
