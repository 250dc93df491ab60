// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The settings of the connection to the broker, of a configuration.
extension MQTTClient.Settings {
    /// - Parameter id: the part of the client identifier that nobody can guess; nil where none can be kept.
    /// - Throws: what can't be read.
    static func of(
        _ configuration: BridgeConfiguration, _ presence: OwnPresence, id: String?
    ) throws(MQTTError) -> MQTTClient.Settings {
        let password: String?
        do throws(FileError) {
            password = try configuration.password()
        } catch {
            throw MQTTError(.settingsInvalid, error.description)
        }
        let origin = configuration.origin
        var settings = MQTTClient.Settings(
            host: configuration.brokerHost, port: configuration.port,
            // Whoever knows it has the session, with what waits in it, if the broker does not bind it to a user.
            clientID: (["carillon", configuration.realm, origin.host, origin.user, id] as [String?]).compactMap(\.self)
                .joined(separator: "-"))
        settings.keepAlive = configuration.keepAlive
        settings.sessionExpiry = configuration.sessionExpiry
        settings.receiveMaximum = configuration.receiveMaximum
        settings.sendMaximum = configuration.inFlight
        settings.maximumPacketSize = 4 << 20
        settings.userName = configuration.userName
        settings.password = password
        settings.tls = configuration.tls.map { tls in
            MQTTClient.TLS(
                authorityFile: tls.authorityFile, certificateFile: tls.certificateFile, keyFile: tls.keyFile)
        }
        settings.will = presence.farewell(
            topic: BridgeTopic(.online, of: origin).text(in: configuration.realm))
        settings.willDelay = secondsBeforeWill
        return settings
    }

    /// In seconds: a bridge that connects again so soon was never offline.
    private static let secondsBeforeWill: UInt32 = 5
}
