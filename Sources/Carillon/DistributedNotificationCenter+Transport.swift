// SPDX-License-Identifier: Apache-2.0
import CarillonClient

/// The transport of posts and notifications (F2).
extension DistributedNotificationCenter {
    /// The transport of notifications between the program and the service.
    public typealias Transport = CarillonClient.Transport

    /// The requested transport of posts and notifications of this center; `.bus` by default.
    ///
    /// A **channel** is a socket between the program and the service alone. Content, order, limits and policy are the
    /// same as on the bus, at a fraction of the cost. The bus and its monitors, such as `dbus-monitor`, do not see the
    /// traffic. Therefore the program or its user has to request a channel:
    ///
    /// ```swift
    /// let center = DistributedNotificationCenter.default()
    /// center.transport = .channel
    /// ```
    ///
    /// The best time is before the first observer and the first post. At any other time the center changes the
    /// transport by itself, without loss or reordering.
    ///
    /// A channel is optional. If the service is an older version, or its configuration has `channels = false`,
    /// everything passes over the bus, and the center requests a channel again later. The same happens when a channel
    /// ends. ``transportInUse`` is the current transport. Posts whose acceptance is unknown when a channel ends are not
    /// repeated. They are reported as possibly lost (``Event/postsMayBeLost(count:)``), or their caller receives
    /// ``DistributedNotificationError/disconnected(_:)``.
    ///
    /// The environment variable `CARILLON_TRANSPORT`, with the value `bus` or `channel`, overrides the program's choice
    /// for all of its centers. Setting this property then has no effect, and its value is that of the variable.
    ///
    /// Threads: any.
    public var transport: Transport {
        get { link.transport.value }
        set { link.wish(newValue) }
    }

    /// The transport that posts and notifications use now.
    ///
    /// Threads: any.
    public var transportInUse: Transport { state.withLock { $0.transport } }
}
