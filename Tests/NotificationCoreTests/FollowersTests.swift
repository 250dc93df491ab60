// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// The bookkeeping below ``InterestTests`` and ``FollowValuesTests``.
@Suite("G4, G5: bookkeeping of followers and their pending notices", .limited)
struct FollowersTests {
    /// Three that follow, of which the first two know what holds.
    private func knowing() -> Followers {
        var followers = Followers()
        for (number, name) in [one, two, three].enumerated() {
            let isNew = followers.add(name, number: number)
            #expect(isNew)
        }
        followers.inform(1)
        followers.inform(0)
        return followers
    }

    @Test("A follower that has read the list is notified once, in the order of numbers, until it reads again")
    func once() {
        var followers = knowing()
        #expect(followers.takeOutdated().isEmpty)
        followers.changed(forAllBut: nil)
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated() == [one, two])
        #expect(followers.takeOutdated().isEmpty)
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated().isEmpty)
        followers.inform(2)
        followers.inform(1)
        followers.changed(forAllBut: 1)
        #expect(followers.takeOutdated() == [three])
        followers.changed(for: 1)
        #expect(followers.takeOutdated() == [two], "it still knew")
    }

    @Test("A change for one follower is reported only to that follower, if it has read the list")
    func alone() {
        var followers = knowing()
        followers.changed(for: 0)
        followers.changed(for: 2)
        followers.changed(for: 7)
        #expect(followers.takeOutdated() == [one])
        followers.changed(forAllBut: 0)
        #expect(followers.takeOutdated() == [two])
    }

    @Test("A follower that reads the list before its notice gets no notice")
    func askedMeanwhile() {
        var followers = knowing()
        followers.changed(forAllBut: nil)
        followers.inform(0)
        #expect(followers.takeOutdated() == [two])
    }

    @Test("Adding an existing follower changes no state")
    func again() {
        var followers = knowing()
        let isNew = followers.add(one, number: 0)
        #expect(!isNew && followers.contains(0) && !followers.contains(3))
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated() == [one, two], "and changes nothing of what it knows")
    }

    @Test("A removed follower leaves no state to a new follower with its number")
    func left() {
        var followers = knowing()
        followers.changed(for: 0)
        for number in [0, 1] { followers.remove(number) }
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated().isEmpty && !followers.contains(0))
        let isNew = followers.add(":1.9", number: 0)
        #expect(isNew)
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated().isEmpty)
        followers.remove(0)
        followers.remove(2)
        #expect(followers == Followers())
    }

    @Test("A restored follower is notified unless it has read the list since")
    func restored() {
        var followers = knowing()
        for number in 0...3 { followers.notifyAgain(number) }
        #expect(followers.takeOutdated() == [three])
    }
}
