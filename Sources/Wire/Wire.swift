// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The names of the wire contract, version 1. The names of methods, signals, properties, options and errors are with
/// their types.
public enum Wire {
    public static let busName: WellKnownName = "org.carillon.NotificationCenter1"
    public static let path: ObjectPath = "/org/carillon/NotificationCenter1"
    public static let interface: InterfaceName = "org.carillon.NotificationCenter1"
    /// The systemd unit in the activation file of the bus.
    public static let unit = "carillond.service"
    /// The version of this software; the version of the interface is the digit at the end of its name.
    public static let softwareVersion = "0.1.0"
    /// The maximum size of a reply that lists items, in bytes. Unread replies count against the caller, and a bus
    /// disconnects a service that sends too much at once.
    public static let maxAnswerBytes = DistributedCenter.largestAnswer
    /// The maximum size of one page of a list, in bytes, small enough that other callers hardly wait for it.
    public static let maxPageBytes = 256 << 10

    /// Returns a call to the service, without arguments. ``CenterMethod`` appends them; tests use it to send invalid
    /// calls.
    package static func methodCall(_ member: MemberName, startsService: Bool = true) -> Message {
        .methodCall(to: busName, path: path, interface: interface, member: member, startsService: startsService)
    }

    /// Returns a signal of the service, without arguments.
    package static func signal(_ member: MemberName, to client: UniqueName) -> Message {
        .signal(to: client, path: path, interface: interface, member: member)
    }
}
