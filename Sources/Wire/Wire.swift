// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The names and sizes common to the D-Bus interface of the service, version 1. The names of methods, signals,
/// properties, options and errors are with their types in this module.
public enum Wire {
    public static let busName: WellKnownName = "org.carillon.NotificationCenter1"
    public static let path: ObjectPath = "/org/carillon/NotificationCenter1"
    public static let interface: InterfaceName = "org.carillon.NotificationCenter1"
    /// The systemd unit of the service, which D-Bus activation starts.
    public static let unit = "carillond.service"
    /// The version of this software; the version of the interface is the digit at the end of its name.
    public static let softwareVersion = "0.1.0"
    /// The maximum size of a reply that lists items, in bytes. It is limited, because a bus disconnects a service that
    /// sends too much at once, and because unread replies use the caller's quota.
    public static let maxAnswerBytes = DistributedCenter.largestAnswer
    /// The maximum size of one page of a list, in bytes. It is small, so that other callers do not wait long.
    public static let maxPageBytes = 256 << 10

    /// Returns a call to the service without arguments, which ``CenterMethod`` appends. Tests send invalid calls with
    /// it.
    package static func methodCall(_ member: MemberName, startsService: Bool = true) -> Message {
        .methodCall(to: busName, path: path, interface: interface, member: member, startsService: startsService)
    }

    /// Returns a signal of the service, without arguments.
    package static func signal(_ member: MemberName, to client: UniqueName) -> Message {
        .signal(to: client, path: path, interface: interface, member: member)
    }
}
