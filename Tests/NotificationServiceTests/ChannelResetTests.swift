// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// What lies written and unread in a channel is lost when its client closes it so, and the client is told, whatever
/// happens next, and whoever finds out.
@Suite("S4, F2, E5: channels closed with unread notifications", .limited)
struct ChannelResetTests {
    /// What happens after the client has closed its end.
    enum Sequel: CaseIterable, Sendable {
        /// The service's loop goes on.
        case serviceReads
        /// The bus closes the service's connection before anybody has looked at the channel.
        case busCloses
        /// The same when the service has read the end.
        case busClosesLater
        case opensAnother
        /// The configuration allows no channels any more.
        case disallowed
        /// Something more is due to it.
        case morePosted
    }

    /// How the client had left its end.
    enum Reading: Int, CaseIterable, Sendable {
        case nothing = 0
        case some = 1
        case all = 2
    }

    @Test(
        "S4, E5: notifications that are unread in a closed channel are announced once, and read ones are not",
        arguments: Sequel.allCases,
        Reading.allCases)
    func unread(sequel: Sequel, reading: Reading) throws {
        let stage = try ServiceStage()
        let (client, poster) = (stage.join(), stage.join())
        try client.observe("Ding")
        let channel = try client.openChannel()
        stage.settle()
        let before = 2
        for _ in 0..<before { try poster.post("Ding") }
        stage.settle()
        if reading != .nothing { try channel.read() }
        let read = channel.notifications.count
        for _ in 0..<3 { try poster.post("Ding") }
        stage.settle()
        if reading == .all { try channel.read() }
        let unread = reading == .all ? 0 : reading == .some ? 3 : 5
        #expect(read == (reading == .nothing ? 0 : before))
        // With something unread in it, the service's end is reset.
        channel.close()
        var posted = 0
        switch sequel {
        case .serviceReads: break
        case .busCloses: try stage.disconnect()
        case .busClosesLater:
            // Long enough that what it was told is no longer on its way.
            stage.pass(milliseconds: 60_000)
            try stage.disconnect()
        case .opensAnother: try client.openChannel()
        case .disallowed: stage.configure { $0.allowsChannels = false }
        case .morePosted:
            try poster.post("Ding")
            posted = 1
        }
        stage.settle()
        // Something newer, behind which nothing older can come.
        try poster.post("Ding", "last")
        stage.settle()
        try client.channel?.read()
        let dropped =
            client.dropped.map(\.count) + (client.channel === channel ? [] : client.channel?.dropped.map(\.count) ?? [])
        let told = dropped.reduce(0, +)
        let objects =
            client.notifications.map(\.object)
            + (client.channel === channel ? [] : client.channel?.notifications.map(\.object) ?? [])
        // What was due when it was closed may have been written to it, and so be among what is told as lost.
        #expect(told >= UInt64(unread) && told <= UInt64(unread + posted), "\(client.dropped)")
        #expect(objects.last == "last")
        #expect(objects.count + Int(told) == unread + posted + 1)
        #expect(dropped.count <= 1)
    }
}
