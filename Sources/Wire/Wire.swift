// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The names of the wire contract, version 1. Those of its methods, signals, properties, options and errors are with
/// their types.
public enum Wire {
    public static let busName: WellKnownName = "org.carillon.NotificationCenter1"
    public static let path: ObjectPath = "/org/carillon/NotificationCenter1"
    public static let interface: InterfaceName = "org.carillon.NotificationCenter1"
    /// The unit of systemd that the activation file of the bus names.
    public static let unit = "carillond.service"
    /// The version of this software; that of the interface is the digit at the end of its name.
    public static let softwareVersion = "0.1.0"
    /// The most that an answer which lists something takes, in bytes: whoever asks pays for what it does not read, and a
    /// bus ends the connection of a service that sends too much at once.
    public static let maxAnswerBytes = DistributedCenter.largestAnswer
    /// Those of an answer whose caller asks again for the rest: few enough that others hardly wait for it.
    public static let maxPieceBytes = 256 << 10

    /// A call to the service that has no arguments yet. ``CenterMethod`` appends them, and tests what no client should.
    package static func methodCall(_ member: MemberName, startsService: Bool = true) -> Message {
        .methodCall(to: busName, path: path, interface: interface, member: member, startsService: startsService)
    }

    /// A signal of the service that has no arguments yet.
    package static func signal(_ member: MemberName, to client: UniqueName) -> Message {
        .signal(to: client, path: path, interface: interface, member: member)
    }
}
