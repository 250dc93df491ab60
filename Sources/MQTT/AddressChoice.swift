// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Which of a host's addresses is tried.
///
/// libmosquitto takes the first one that does not fail at once, each time. Where one family of addresses leads nowhere,
/// as IPv6 does in many homes, it would never come to the other. An address to bind to restricts it to a family; with the
/// name, which TLS compares with the certificate, as it is.
struct AddressChoice: Sendable {
    /// Once there was one, it can't be taken back: libmosquitto 2.0.11 would use it after it was freed.
    private var bindAddress: String?

    /// Nobody was reached.
    mutating func failed() {
        bindAddress = Self.other(than: bindAddress)
    }

    /// - Parameter attempt: begins to connect, restricted to the family of an address.
    mutating func connect(_ attempt: (String?) throws(MQTTError) -> Void) throws(MQTTError) {
        do {
            try attempt(bindAddress)
        } catch let first {
            // One that fails at once is no reason to wait for the next time.
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

    /// Whether it only says that the host has no address of a family.
    private static func isOfBinding(_ error: MQTTError) -> Bool {
        [EAFNOSUPPORT, EINVAL, EADDRNOTAVAIL].contains { error.cause == .system($0) }
    }
}
