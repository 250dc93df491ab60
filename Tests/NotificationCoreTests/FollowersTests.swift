// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// The bookkeeping below ``InterestTests`` and ``FollowValuesTests``.
@Suite("G4, G5: who follows, who knows, who is to be told", .limited)
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

    @Test("Who knows is told once, in the order of the numbers, and again when it has asked again")
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

    @Test("A change for one is told to that one alone, if it knows")
    func alone() {
        var followers = knowing()
        followers.changed(for: 0)
        followers.changed(for: 2)
        followers.changed(for: 7)
        #expect(followers.takeOutdated() == [one])
        followers.changed(forAllBut: 0)
        #expect(followers.takeOutdated() == [two])
    }

    @Test("Who asks before it was told is not told")
    func askedMeanwhile() {
        var followers = knowing()
        followers.changed(forAllBut: nil)
        followers.inform(0)
        #expect(followers.takeOutdated() == [two])
    }

    @Test("To follow again is nothing new")
    func again() {
        var followers = knowing()
        let isNew = followers.add(one, number: 0)
        #expect(!isNew && followers.contains(0) && !followers.contains(3))
        followers.changed(forAllBut: nil)
        #expect(followers.takeOutdated() == [one, two], "and changes nothing of what it knows")
    }

    @Test("Nothing is left of who leaves, for the one that gets its number")
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

    @Test("Who followed before this process is told, if it has not asked yet")
    func restored() {
        var followers = knowing()
        for number in 0...3 { followers.notifyAgain(number) }
        #expect(followers.takeOutdated() == [three])
    }
}
