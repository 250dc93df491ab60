// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// A D-Bus interface as a table of methods, signals and properties. ``ObjectExporter`` uses it to dispatch calls and to
/// generate the introspection data.
public struct Interface {
    /// An argument of a method or a signal.
    public struct Argument: Sendable {
        public let name: String
        public let signature: Signature
        /// The C++ type of the argument, for qdbusxml2cpp, the code generator of Qt; nil if Qt knows the type itself.
        let qtType: String?

        public init(_ name: String, _ signature: Signature, qtType: String? = nil) {
            self.name = name
            self.signature = signature
            self.qtType = qtType ?? Interface.qtTypes[signature.rawValue]
        }
    }

    /// C++ types for signatures that qdbusxml2cpp does not know.
    fileprivate static let qtTypes = [
        "a{sv}": "QVariantMap", "aa{sv}": "QList<QVariantMap>", "at": "QList<qulonglong>",
        "a{st}": "QMap<QString,qulonglong>",
    ]

    public struct Method {
        public let name: MemberName
        public let inputs: [Argument]
        public let outputs: [Argument]
        /// Runs with arguments of exactly the declared types. A thrown error becomes the error reply.
        public let handler: (MethodCall) throws(BusError) -> Void
        /// The signature of all inputs, with which a call is compared.
        let inputSignature: Signature

        public init(
            _ name: MemberName, in inputs: [Argument] = [], out outputs: [Argument] = [],
            handler: @escaping (MethodCall) throws(BusError) -> Void
        ) {
            self.name = name
            self.inputs = inputs
            self.outputs = outputs
            self.handler = handler
            inputSignature = Signature(unchecked: inputs.map(\.signature.rawValue).joined())
        }
    }

    public struct Signal: Sendable {
        public let name: MemberName
        public let arguments: [Argument]

        public init(_ name: MemberName, _ arguments: [Argument]) {
            self.name = name
            self.arguments = arguments
        }
    }

    /// A readable property.
    public struct Property {
        /// The announcement of changes (`org.freedesktop.DBus.Property.EmitsChangedSignal`).
        public enum Change: String, Sendable {
            /// The change is announced with the new value.
            case announced = "true"
            case notAnnounced = "false"
            /// The change is announced without the value.
            case invalidated = "invalidates"
            /// The value never changes.
            case never = "const"
        }

        public let name: String
        public let signature: Signature
        public let change: Change
        private let value: (inout MessageWriter, UniqueName?) -> Void

        public init(
            _ name: String, _ signature: Signature, change: Change, write: @escaping (inout MessageWriter) -> Void
        ) {
            self.init(name, signature, change: change) { writer, _ in write(&writer) }
        }

        /// Creates a property whose value depends on its reader.
        ///
        /// - Parameter write: Receives the reading client; nil for values announced to all.
        public init(
            _ name: String, _ signature: Signature, change: Change,
            write: @escaping (inout MessageWriter, UniqueName?) -> Void
        ) {
            self.name = name
            self.signature = signature
            self.change = change
            value = write
        }

        /// Appends the value.
        ///
        /// - Parameter reader: The reading client; nil for a value announced to all.
        public func write(_ writer: inout MessageWriter, for reader: UniqueName? = nil) {
            value(&writer, reader)
        }
    }

    public let name: InterfaceName
    public let methods: [Method]
    public let signals: [Signal]
    public let properties: [Property]

    public init(name: InterfaceName, methods: [Method], signals: [Signal], properties: [Property]) {
        self.name = name
        self.methods = methods
        self.signals = signals
        self.properties = properties
    }
}

/// Introspection data in the format of the D-Bus specification.
extension Interface {
    /// Returns the document of an object with this interface.
    ///
    /// - Parameter standard: Whether the document also lists the standard interfaces that ``ObjectExporter``
    ///   implements.
    func introspectionDocument(standard: Bool) -> String {
        var lines = Self.header
        lines.append("<node>")
        lines += elements
        if standard { lines.append(Self.standardInterfaces) }
        lines.append("</node>")
        return lines.joined(separator: "\n") + "\n"
    }

    /// Returns the document of an ancestor object, whose only content is one child node.
    static func introspectionDocument(child: String) -> String {
        (header + ["<node>", introspectableInterface, "  <node name=\"\(child)\"/>", "</node>"])
            .joined(separator: "\n") + "\n"
    }

    /// The lines of the `interface` element.
    private var elements: [String] {
        var lines = ["  <interface name=\"\(name)\">"]
        for method in methods {
            lines.append("    <method name=\"\(method.name)\">")
            lines += method.inputs.map { Self.element($0, direction: "in") }
            lines += method.outputs.map { Self.element($0, direction: "out") }
            lines += Self.qtAnnotations(method.inputs, "In") + Self.qtAnnotations(method.outputs, "Out")
            // Code generators of GLib need this annotation for methods with file descriptors.
            if (method.inputs + method.outputs).contains(where: { $0.signature.rawValue.contains("h") }) {
                lines.append(Self.annotation("org.gtk.GDBus.C.UnixFD", "true"))
            }
            lines.append("    </method>")
        }
        for signal in signals {
            lines.append("    <signal name=\"\(signal.name)\">")
            lines += signal.arguments.map { Self.element($0, direction: nil) }
            lines += Self.qtAnnotations(signal.arguments, "Out")
            lines.append("    </signal>")
        }
        for property in properties {
            lines.append("    <property name=\"\(property.name)\" type=\"\(property.signature)\" access=\"read\">")
            lines.append(
                Self.annotation("org.freedesktop.DBus.Property.EmitsChangedSignal", property.change.rawValue))
            if let type = Self.qtTypes[property.signature.rawValue] {
                lines.append(Self.annotation(Self.qtTypeName, type))
            }
            lines.append("    </property>")
        }
        lines.append("  </interface>")
        return lines
    }

    private static func element(_ argument: Argument, direction: String?) -> String {
        let direction = direction.map { " direction=\"\($0)\"" } ?? ""
        return "      <arg name=\"\(argument.name)\" type=\"\(argument.signature)\"\(direction)/>"
    }

    private static let qtTypeName = "org.qtproject.QtDBus.QtTypeName"

    private static func qtAnnotations(_ arguments: [Argument], _ direction: String) -> [String] {
        arguments.enumerated().compactMap { index, argument in
            argument.qtType.map { annotation("\(qtTypeName).\(direction)\(index)", $0) }
        }
    }

    private static func annotation(_ name: String, _ value: String) -> String {
        let value = value.map { $0 == "<" ? "&lt;" : $0 == ">" ? "&gt;" : String($0) }.joined()
        return "      <annotation name=\"\(name)\" value=\"\(value)\"/>"
    }

    private static let header = [
        "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"",
        " \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">",
    ]

    private static let introspectableInterface = """
          <interface name="org.freedesktop.DBus.Introspectable">
            <method name="Introspect">
              <arg name="xml_data" type="s" direction="out"/>
            </method>
          </interface>
        """

    private static let standardInterfaces =
        introspectableInterface + "\n" + """
              <interface name="org.freedesktop.DBus.Peer">
                <method name="Ping"/>
                <method name="GetMachineId">
                  <arg name="machine_uuid" type="s" direction="out"/>
                </method>
              </interface>
              <interface name="org.freedesktop.DBus.Properties">
                <method name="Get">
                  <arg name="interface_name" type="s" direction="in"/>
                  <arg name="property_name" type="s" direction="in"/>
                  <arg name="value" type="v" direction="out"/>
                </method>
                <method name="GetAll">
                  <arg name="interface_name" type="s" direction="in"/>
                  <arg name="properties" type="a{sv}" direction="out"/>
                  <annotation name="org.qtproject.QtDBus.QtTypeName.Out0" value="QVariantMap"/>
                </method>
                <method name="Set">
                  <arg name="interface_name" type="s" direction="in"/>
                  <arg name="property_name" type="s" direction="in"/>
                  <arg name="value" type="v" direction="in"/>
                </method>
                <signal name="PropertiesChanged">
                  <arg name="interface_name" type="s"/>
                  <arg name="changed_properties" type="a{sv}"/>
                  <arg name="invalidated_properties" type="as"/>
                  <annotation name="org.qtproject.QtDBus.QtTypeName.Out1" value="QVariantMap"/>
                </signal>
              </interface>
            """
}
