// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The address family, IPv4 or IPv6, to which the next attempt to connect is restricted. Each ``ClientDriver`` has one
/// and passes it on to the driver of the next connection.
///
/// In each attempt libmosquitto takes the first address of the host that does not fail at once. If one family leads
/// nowhere, as IPv6 does in many homes, libmosquitto alone never tries the other family. A local address to bind to
/// restricts it: `0.0.0.0` to IPv4, and `::` to IPv6. The host name stays as it is, because TLS compares it with the
/// certificate.
struct AddressChoice: Sendable {
    /// The local address to bind to; nil for any family. It is never nil again once it is set: libmosquitto 2.0.11
    /// would then use the earlier address after it was freed.
    private var bindAddress: String?

    /// Changes the family, because the host was not reached: first to IPv4, and then alternately.
    mutating func failed() {
        bindAddress = Self.other(than: bindAddress)
    }

    /// Begins to connect. If an attempt that is restricted to one family fails at once, the other family is tried at
    /// once.
    ///
    /// - Parameter attempt: begins to connect, restricted to the family of an address; nil for any family.
    mutating func connect(_ attempt: (String?) throws(MQTTError) -> Void) throws(MQTTError) {
        do {
            try attempt(bindAddress)
        } catch let first {
            guard bindAddress != nil, case .system = first.cause else { throw first }
            failed()
            do {
                try attempt(bindAddress)
            } catch let second {
                // An error that says more than "this family has no address" takes precedence.
                throw Self.isOfBinding(first) ? second : first
            }
        }
    }

    /// Returns the address that restricts attempts to the other family.
    private static func other(than address: String?) -> String {
        address == "0.0.0.0" ? "::" : "0.0.0.0"
    }

    /// Whether the error says only that the host has no address of a family.
    private static func isOfBinding(_ error: MQTTError) -> Bool {
        [EAFNOSUPPORT, EINVAL, EADDRNOTAVAIL].contains { error.cause == .system($0) }
    }
}
