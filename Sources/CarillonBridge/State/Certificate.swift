// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The check of the certificate and key files by OpenSSL, for warnings before a connection fails. The functions are
/// found in the OpenSSL library that libmosquitto has loaded, so the bridge does not link it. If libmosquitto was built
/// without TLS, all results are unknown.
enum Certificate {
    /// The end of a certificate's validity.
    enum End: Equatable {
        /// The end can't be determined.
        case unknown
        /// The bytes contain no certificate.
        case none
        /// The seconds until the end; negative if the certificate has expired.
        case inSeconds(Int)
    }

    /// Whether a key belongs to a certificate.
    enum KeyMatch: Equatable {
        /// OpenSSL is missing, or the certificate is unreadable.
        case unknown
        case fits
        /// The bytes contain no key, or only a key with a passphrase.
        case isNoKey
        /// The key belongs to another certificate.
        case isOfAnother
    }

    private typealias Pointer = UnsafeMutableRawPointer
    private typealias AskPassphrase = @convention(c) (UnsafeMutablePointer<CChar>?, CInt, CInt, Pointer?) -> CInt
    /// OpenSSL's type of a function that reads an object in PEM format.
    private typealias Read = @convention(c) (Pointer, Pointer?, AskPassphrase, Pointer?) -> Pointer?

    /// The functions of OpenSSL in this process; `init` has their names.
    private struct OpenSSLFunctions {
        /// Creates a reader of bytes in memory (a BIO).
        let makeReader: @convention(c) (UnsafeRawPointer, CInt) -> Pointer?
        let freeReader: @convention(c) (Pointer) -> CInt
        let readCertificate: Read
        let freeCertificate: @convention(c) (Pointer) -> Void
        /// Returns the end of a certificate's validity, as a time of OpenSSL.
        let end: @convention(c) (Pointer) -> Pointer?
        /// Computes the days and seconds between two times; nil stands for now.
        let difference:
            @convention(c) (
                UnsafeMutablePointer<CInt>, UnsafeMutablePointer<CInt>, Pointer?, Pointer?
            ) -> CInt
        let readKey: Read
        let freeKey: @convention(c) (Pointer) -> Void
        let isKeyOf: @convention(c) (Pointer, Pointer) -> CInt
        let clearErrors: @convention(c) () -> Void

        /// Finds the functions; nil if one is missing.
        init?() {
            func function<Function>(_ name: String, _: Function.Type = Function.self) -> Function? {
                dlsym(nil, name).map { unsafeBitCast($0, to: Function.self) }
            }
            guard
                let makeReader = function(
                    "BIO_new_mem_buf", (@convention(c) (UnsafeRawPointer, CInt) -> Pointer?).self),
                let freeReader = function("BIO_free", (@convention(c) (Pointer) -> CInt).self),
                let readCertificate = function("PEM_read_bio_X509_AUX", Read.self),
                let freeCertificate = function("X509_free", (@convention(c) (Pointer) -> Void).self),
                let end = function("X509_get0_notAfter", (@convention(c) (Pointer) -> Pointer?).self),
                let difference = function(
                    "ASN1_TIME_diff",
                    (@convention(c) (UnsafeMutablePointer<CInt>, UnsafeMutablePointer<CInt>, Pointer?, Pointer?) -> CInt)
                        .self),
                let readKey = function("PEM_read_bio_PrivateKey", Read.self),
                let freeKey = function("EVP_PKEY_free", (@convention(c) (Pointer) -> Void).self),
                let isKeyOf = function("X509_check_private_key", (@convention(c) (Pointer, Pointer) -> CInt).self),
                let clearErrors = function("ERR_clear_error", (@convention(c) () -> Void).self)
            else { return nil }
            self.makeReader = makeReader
            self.freeReader = freeReader
            self.readCertificate = readCertificate
            self.freeCertificate = freeCertificate
            self.end = end
            self.difference = difference
            self.readKey = readKey
            self.freeKey = freeKey
            self.isKeyOf = isKeyOf
            self.clearErrors = clearErrors
        }

        /// Reads an object, calls `body` with it and frees it.
        ///
        /// - Parameters:
        ///   - read: OpenSSL's function that reads the object in PEM format.
        ///   - free: OpenSSL's function that frees the object.
        ///   - body: receives the object; nil for unreadable bytes.
        func with<Result>(
            _ bytes: [UInt8], read: Read, free: (Pointer) -> Void, _ body: (Pointer?) -> Result
        ) -> Result {
            let object = bytes.withUnsafeBytes { bytes -> Pointer? in
                guard let start = bytes.baseAddress, let reader = makeReader(start, CInt(bytes.count)) else {
                    return nil
                }
                defer { _ = freeReader(reader) }
                // There is no user to ask for a passphrase.
                return read(reader, nil, { _, _, _, _ in -1 }, nil)
            }
            defer {
                if let object { free(object) }
                // OpenSSL keeps errors for each thread. A TLS connection would report these errors as its own.
                clearErrors()
            }
            return body(object)
        }
    }

    /// Returns the end of validity of the first certificate of a file in PEM format.
    static func end(inPEM bytes: [UInt8]) -> End {
        guard let library = OpenSSLFunctions() else { return .unknown }
        return library.with(bytes, read: library.readCertificate, free: library.freeCertificate) { certificate in
            guard let certificate else { return .none }
            var (days, seconds): (CInt, CInt) = (0, 0)
            guard library.difference(&days, &seconds, nil, library.end(certificate)) == 1 else { return .unknown }
            return .inSeconds(Int(days) * 86_400 + Int(seconds))
        }
    }

    /// Returns whether a private key belongs to the first certificate of a file.
    static func fit(ofKeyInPEM key: [UInt8], toCertificateInPEM certificate: [UInt8]) -> KeyMatch {
        guard let library = OpenSSLFunctions() else { return .unknown }
        return library.with(certificate, read: library.readCertificate, free: library.freeCertificate) { certificate in
            library.with(key, read: library.readKey, free: library.freeKey) { key in
                guard let certificate else { return .unknown }
                guard let key else { return .isNoKey }
                return library.isKeyOf(certificate, key) == 1 ? .fits : .isOfAnother
            }
        }
    }
}
