// SPDX-License-Identifier: Apache-2.0
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Remarks on a configuration, and on the files that it names, as they are on the disk now.
public struct FileRemarks {
    /// With these there can be no connection.
    public private(set) var faults: [String] = []
    /// These will be faults, or are dangers.
    public private(set) var warnings: [String] = []

    public init(_ configuration: BridgeConfiguration) {
        for file in configuration.namedFiles { check(file) }
        warnings += configuration.mappingRemarks
    }

    public var all: [String] { faults + warnings }

    private mutating func check(_ file: BridgeConfiguration.NamedFile) {
        let bytes: [UInt8]
        do throws(FileError) {
            guard let contents = try file.contents() else {
                return faults.append("\(file.key): there is no file \(file.path)")
            }
            bytes = contents
        } catch {
            return faults.append("\(file.key): \(error)")
        }
        switch file.kind {
        case .certificate: check(certificate: bytes, file)
        case .secret:
            var status = stat()
            if stat(file.path, &status) == 0, status.st_mode & 0o007 != 0 {
                warnings.append("\(file.key): every user of the machine may use \(file.path) (chmod o-rwx)")
            }
        }
    }

    /// A file may have several, as those of authorities do: the one that ends first counts, but for the many that a system
    /// trusts.
    private mutating func check(certificate bytes: [UInt8], _ file: BridgeConfiguration.NamedFile) {
        guard let seconds = Certificate.secondsLeft(inPEM: bytes), let end = Self.end(secondsLeft: seconds) else {
            return
        }
        let remark = "\(file.key): the certificate in \(file.path) \(end)"
        if seconds <= 0 { faults.append(remark) } else { warnings.append(remark) }
    }

    private static let daysOfWarning = 14

    /// The words on the end of a certificate, or nil where it is far away.
    static func end(secondsLeft seconds: Int) -> String? {
        switch seconds / 86_400 {
        case _ where seconds <= 0: "has ended"
        case 0: "ends in less than a day"
        case 1: "ends in 1 day"
        case let days where days < daysOfWarning: "ends in \(days) days"
        default: nil
        }
    }
}

/// Certificates, as OpenSSL reads them. libmosquitto has loaded it; a build of that without TLS has not, and needs none.
enum Certificate {
    private typealias Pointer = UnsafeMutableRawPointer
    private typealias MakeReader = @convention(c) (UnsafeRawPointer, CInt) -> Pointer?
    private typealias Read = @convention(c) (Pointer, Pointer?, Pointer?, Pointer?) -> Pointer?
    private typealias GetTime = @convention(c) (Pointer) -> Pointer?
    private typealias Difference =
        @convention(c) (
            UnsafeMutablePointer<CInt>, UnsafeMutablePointer<CInt>, Pointer?, Pointer?
        ) -> CInt
    private typealias Free = @convention(c) (Pointer) -> Void
    private typealias FreeReader = @convention(c) (Pointer) -> CInt

    /// The time until the first certificate of a file ends, in seconds; negative when it has ended.
    ///
    /// - Returns: nil for what is no certificate, and where nobody can read one.
    static func secondsLeft(inPEM bytes: [UInt8]) -> Int? {
        func symbol<Function>(_ name: String, _: Function.Type) -> Function? {
            dlsym(nil, name).map { unsafeBitCast($0, to: Function.self) }
        }
        guard let makeReader = symbol("BIO_new_mem_buf", MakeReader.self),
            let read = symbol("PEM_read_bio_X509", Read.self),
            let end = symbol("X509_get0_notAfter", GetTime.self),
            let difference = symbol("ASN1_TIME_diff", Difference.self), let free = symbol("X509_free", Free.self),
            let freeReader = symbol("BIO_free", FreeReader.self)
        else { return nil }
        return bytes.withUnsafeBytes { bytes -> Int? in
            guard let start = bytes.baseAddress, let reader = makeReader(start, CInt(bytes.count)) else { return nil }
            defer { _ = freeReader(reader) }
            guard let certificate = read(reader, nil, nil, nil) else { return nil }
            defer { free(certificate) }
            var (days, seconds): (CInt, CInt) = (0, 0)
            guard difference(&days, &seconds, nil, end(certificate)) == 1 else { return nil }
            return Int(days) * 86_400 + Int(seconds)
        }
    }
}
