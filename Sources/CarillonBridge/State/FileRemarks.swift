// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The remarks on a configuration, and on the files that it names, as they are on the disk now.
package struct FileRemarks {
    /// Faults that prevent a connection.
    package private(set) var faults: [String] = []
    /// Dangers, and future faults.
    package private(set) var warnings: [String] = []

    package init(_ configuration: BridgeConfiguration) {
        var contents: [BridgeConfiguration.NamedFile.Key: [UInt8]] = [:]
        for file in configuration.namedFiles { contents[file.key] = check(file) }
        if let password = contents[.passwordFile], password.allSatisfy({ [0x0A, 0x0D].contains($0) }) {
            warnings.append("password-file: there is no password in it")
        }
        checkOwnCertificate(configuration, contents)
        warnings += configuration.mappingRemarks + configuration.listRemarks
    }

    package var all: [String] { faults + warnings }

    /// Adds the remarks of another configuration.
    mutating func add(_ other: FileRemarks) {
        faults += other.faults.filter { !faults.contains($0) }
        warnings += other.warnings.filter { !warnings.contains($0) }
    }

    /// - Returns: the contents of a readable file.
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

    /// Checks the first certificate of a file, which may contain several, as files of authorities do.
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

    /// Checks the certificate by which the broker knows this machine: certificate and key need each other.
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

    private static let daysOfWarning = 14

    /// Returns the remark on the expiry of a certificate; nil if it is far away.
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
