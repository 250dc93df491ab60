// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The choice of the address family of a host for the next attempt.
///
/// libmosquitto takes the first address that does not fail at once, each time. If one address family leads nowhere, as
/// IPv6 does in many homes, it would never try the other. An address to bind to restricts it to one family. The host
/// name stays as it is, because TLS compares it with the certificate.
struct AddressChoice: Sendable {
    /// Never removed once it is set: libmosquitto 2.0.11 would use it after it was freed.
    private var bindAddress: String?

    /// Changes the family, because the host was not reached.
    mutating func failed() {
        bindAddress = Self.other(than: bindAddress)
    }

    /// - Parameter attempt: begins to connect, restricted to the family of an address; nil for any family.
    mutating func connect(_ attempt: (String?) throws(MQTTError) -> Void) throws(MQTTError) {
        do {
            try attempt(bindAddress)
        } catch let first {
            // After an attempt that fails at once, the other family is tried at once.
            guard bindAddress != nil, case .system = first.cause else { throw first }
            failed()
            do {
                try attempt(bindAddress)
            } catch let second {
                throw Self.isOfBinding(first) ? second : first
            }
        }
    }

    private static func other(than address: String?) -> String {
        address == "0.0.0.0" ? "::" : "0.0.0.0"
    }

    /// Whether the error says only that the host has no address of a family.
    private static func isOfBinding(_ error: MQTTError) -> Bool {
        [EAFNOSUPPORT, EINVAL, EADDRNOTAVAIL].contains { error.cause == .system($0) }
    }
}
