// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The settings of the MQTT client of a ``BrokerLink``.
extension MQTTClient.Settings {
    /// Returns the settings for a configuration.
    ///
    /// - Parameters:
    ///   - presence: the presence of this process, whose offline message is the last will.
    ///   - id: the unguessable part of the client identifier; nil if none can be stored (``StateStore/clientID()``).
    /// - Throws: an error that names an unreadable password file.
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
            // The unguessable part protects the session: unless the broker binds it to a user, any client that knows
            // the identifier gets the session and its queued messages.
            clientID: (["carillon", configuration.realm, origin.host, origin.user, id] as [String?]).compactMap(\.self)
                .joined(separator: "-"))
        settings.keepAlive = configuration.keepAlive
        settings.sessionExpiry = configuration.sessionExpiry
        settings.receiveMaximum = configuration.receiveMaximum
        settings.sendMaximum = configuration.inFlight
        // Far above the 1 MiB that the service accepts as userInfo by default. The broker drops larger messages.
        settings.maximumPacketSize = 4 << 20
        settings.userName = configuration.userName
        settings.password = password
        settings.tls = configuration.tls.map { tls in
            MQTTClient.TLS(
                authorityFile: tls.authorityFile, certificateFile: tls.certificateFile, keyFile: tls.keyFile)
        }
        settings.will = presence.offlineMessage(
            topic: BridgeTopic(.online, of: origin).text(in: configuration.realm))
        settings.willDelay = secondsBeforeWill
        return settings
    }

    /// The delay of the last will, in seconds. A bridge that reconnects within it does not appear offline.
    private static let secondsBeforeWill: UInt32 = 5
}
