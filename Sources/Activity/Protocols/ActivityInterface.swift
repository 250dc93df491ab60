// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The interface `org.carillon.Activity1`, by which desktops report: its names, and its messages as values, coded in
/// both directions.
///
/// It is documented in `dbus-interfaces/org.carillon.Activity1.xml`.
package enum ActivityInterface {
    package static let path: ObjectPath = "/org/carillon/Activity"
    package static let name: InterfaceName = "org.carillon.Activity1"

    /// The focus changed.
    package struct Focused: ActivityReport {
        /// The window that has the focus now; empty if none has.
        package var window: String
        /// Its process, 0 if that is not known.
        package var processID: Int32
        /// The id of its application, as its desktop file is named; empty if that is not known.
        package var application: String

        package init(window: String, processID: Int32, application: String) {
            self.window = window
            self.processID = processID
            self.application = application
        }

        package static let member: MemberName = "Focused"
        package static let arguments: [Interface.Argument] = [
            .init("window", "s"), .init("pid", "i"), .init("application", "s"),
        ]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
            processID = try reader.read()
            application = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
            writer.append(processID)
            writer.append(application)
        }
    }

    /// The focus changed, from a desktop that tells more of the window.
    package struct WindowFocused: ActivityReport {
        package var focused: Focused
        /// What the window is, by the names of ``ActivityWindow/Kind``; not looked at when no window has the focus.
        package var kind: String
        /// The process of the window that this one is transient for, directly or not; 0 if there is none.
        package var ownerProcessID: Int32
        /// The application of that window; empty if that is not known.
        package var ownerApplication: String

        package init(focused: Focused, kind: String, ownerProcessID: Int32 = 0, ownerApplication: String = "") {
            self.focused = focused
            self.kind = kind
            self.ownerProcessID = ownerProcessID
            self.ownerApplication = ownerApplication
        }

        package static let member: MemberName = "WindowFocused"
        package static let arguments =
            Focused.arguments + [.init("kind", "s"), .init("owner_pid", "i"), .init("owner_application", "s")]

        package init(from reader: inout MessageReader) throws(BusError) {
            focused = try Focused(from: &reader)
            kind = try reader.readString()
            ownerProcessID = try reader.read()
            ownerApplication = try reader.readString()
            guard focused.window.isEmpty || ActivityWindow.Kind(rawValue: kind) != nil else {
                throw .invalidArgs("'\(kind)' is no kind of window")
            }
        }

        package func append(to writer: inout MessageWriter) {
            focused.append(to: &writer)
            writer.append(kind)
            writer.append(ownerProcessID)
            writer.append(ownerApplication)
        }
    }

    /// A part of the desktop itself is there, as a panel is.
    package struct ShellWindow: ActivityReport {
        package var window: String
        package var processID: Int32
        package var application: String

        package init(window: String, processID: Int32, application: String) {
            self.window = window
            self.processID = processID
            self.application = application
        }

        package static let member: MemberName = "ShellWindow"
        package static let arguments = Focused.arguments

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
            processID = try reader.read()
            application = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
            writer.append(processID)
            writer.append(application)
        }
    }

    /// A window can be seen, or not any more.
    package struct WindowVisibility: ActivityReport {
        package var window: ShellWindow
        /// What the window is, by the names of ``ActivityWindow/Kind``.
        package var kind: String
        package var isHidden: Bool

        package init(window: ShellWindow, kind: String, isHidden: Bool) {
            self.window = window
            self.kind = kind
            self.isHidden = isHidden
        }

        package static let member: MemberName = "WindowVisibility"
        package static let arguments = Focused.arguments + [.init("kind", "s"), .init("hidden", "b")]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try ShellWindow(from: &reader)
            kind = try reader.readString()
            isHidden = try reader.read()
            guard ActivityWindow.Kind(rawValue: kind) != nil else {
                throw .invalidArgs("'\(kind)' is no kind of window")
            }
        }

        package func append(to writer: inout MessageWriter) {
            window.append(to: &writer)
            writer.append(kind)
            writer.append(isHidden)
        }
    }

    /// The desktop reports no more.
    package struct Ended: ActivityReport {
        package init() {}

        package static let member: MemberName = "Ended"
        package static let arguments: [Interface.Argument] = []

        package init(from reader: inout MessageReader) throws(BusError) {}

        package func append(to writer: inout MessageWriter) {}
    }

    /// A window is gone.
    package struct Closed: ActivityReport {
        package var window: String

        package init(window: String) {
            self.window = window
        }

        package static let member: MemberName = "Closed"
        package static let arguments: [Interface.Argument] = [.init("window", "s")]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
        }
    }

    /// The service wants to know which windows can be seen, from now on.
    package struct VisibilityRequested: Equatable, Sendable {
        package static let member: MemberName = "VisibilityRequested"

        package init() {}

        /// - Parameter desktop: the only one that gets it.
        package func signal(to desktop: UniqueName) -> Message {
            .signal(to: desktop, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member)
        }
    }

    /// The service wants to know what has the focus.
    package struct ReportRequested: Equatable, Sendable {
        package static let member: MemberName = "ReportRequested"

        package init() {}

        /// Nil when `message` is another one.
        package init?(_ message: Message) {
            guard message.isSignal(ActivityInterface.name, Self.member) else { return nil }
        }

        /// - Parameter desktop: the only one that gets it.
        package func signal(to desktop: UniqueName) -> Message {
            .signal(to: desktop, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member)
        }
    }
}

/// What a desktop tells the service, by a method call without a result.
package protocol ActivityReport: Equatable, Sendable {
    static var member: MemberName { get }
    static var arguments: [Interface.Argument] { get }
    init(from reader: inout MessageReader) throws(BusError)
    func append(to writer: inout MessageWriter)
}

extension ActivityReport {
    /// - Parameter service: is not started for it.
    package func call(to service: some BusName) -> Message {
        let message = Message.methodCall(
            to: service, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member,
            startsService: false)
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }
}
