// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The faults and warnings about a configuration, and about the files that it names, as they are on disk now. The
/// bridge logs them and reports them in its status; `carillon-bridge --check` prints them.
package struct FileRemarks {
    /// Faults that prevent a connection.
    package private(set) var faults: [String] = []
    /// Dangers, settings without effect, and certificates that expire soon.
    package private(set) var warnings: [String] = []

    /// Reads and checks the files.
    package init(_ configuration: BridgeConfiguration) {
        var contents: [BridgeConfiguration.NamedFile.Key: [UInt8]] = [:]
        for file in configuration.namedFiles { contents[file.key] = check(file) }
        if let password = contents[.passwordFile], password.allSatisfy({ [0x0A, 0x0D].contains($0) }) {
            warnings.append("password-file: there is no password in it")
        }
        checkOwnCertificate(configuration, contents)
        warnings += configuration.mappingRemarks + configuration.listRemarks
    }

    /// The faults and the warnings.
    package var all: [String] { faults + warnings }

    /// Adds the remarks of another configuration, without duplicates.
    mutating func add(_ other: FileRemarks) {
        faults += other.faults.filter { !faults.contains($0) }
        warnings += other.warnings.filter { !warnings.contains($0) }
    }

    /// Checks one file.
    ///
    /// - Returns: its contents; nil if it can't be read.
    private mutating func check(_ file: BridgeConfiguration.NamedFile) -> [UInt8]? {
        let bytes: [UInt8]
        do throws(FileError) {
            guard let contents = try file.contents() else {
                faults.append("\(file.key): there is no file \(file.path)")
                return nil
            }
            bytes = contents
        } catch {
            faults.append("\(file.key): \(error)")
            return nil
        }
        switch file.key {
        case .authorityFile, .certificateFile: check(certificate: bytes, file)
        case .passwordFile, .keyFile:
            var status = stat()
            if stat(file.path, &status) == 0, status.st_mode & 0o007 != 0 {
                warnings.append("\(file.key): every user of the machine may use \(file.path) (chmod o-rwx)")
            }
        }
        return bytes
    }

    /// Checks the expiry of the first certificate of a file. A file of authorities may contain several.
    private mutating func check(certificate bytes: [UInt8], _ file: BridgeConfiguration.NamedFile) {
        switch Certificate.end(inPEM: bytes) {
        case .unknown: break
        case .none: faults.append("\(file.key): \(file.path) lacks a certificate (PEM)")
        case .inSeconds(let seconds):
            guard let end = Self.end(secondsLeft: seconds) else { return }
            let remark = "\(file.key): the certificate in \(file.path) \(end)"
            // In a file of authorities, a valid certificate may follow an expired one.
            if seconds <= 0, file.key == .certificateFile { faults.append(remark) } else { warnings.append(remark) }
        }
    }

    /// Checks that the certificate and the key by which this machine authenticates itself at the broker belong
    /// together.
    private mutating func checkOwnCertificate(
        _ configuration: BridgeConfiguration, _ contents: [BridgeConfiguration.NamedFile.Key: [UInt8]]
    ) {
        guard let tls = configuration.tls else {
            if configuration.hasUnusedCertificates {
                warnings.append("tls=false: neither ca-file, certificate-file nor key-file is used")
            }
            return
        }
        switch (tls.certificateFile, tls.keyFile) {
        case (nil, nil): break
        case (nil, _?): faults.append("key-file: there is no certificate-file for it")
        case (_?, nil): faults.append("certificate-file: there is no key-file for it")
        case (let certificateFile?, let keyFile?):
            guard let certificate = contents[.certificateFile], let key = contents[.keyFile] else { return }
            switch Certificate.fit(ofKeyInPEM: key, toCertificateInPEM: certificate) {
            case .unknown, .fits: break
            case .isNoKey: faults.append("key-file: \(keyFile) lacks a private key (PEM) without a passphrase")
            case .isOfAnother: faults.append("key-file: the key in \(keyFile) is not that of \(certificateFile)")
            }
        }
    }

    /// The number of days before the expiry from which a certificate causes a warning.
    private static let daysOfWarning = 14

    /// Returns the remark on the expiry of a certificate; nil if it is not near.
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
