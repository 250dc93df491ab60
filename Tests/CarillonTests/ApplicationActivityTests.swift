// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import Carillon

@Suite("A2: the program's own statements about its activity, and the reports of a toolkit", .limited)
struct ApplicationActivityTests {
    @Test("A toolkit's report suspends and resumes the program, unless the program has declared itself inactive")
    func statements() throws {
        let desk = try Desk()
        let center = desk.center()
        func expect(suspended: Bool, active: Bool, _ what: Comment) throws {
            try eventually(what.rawValue) { center.suspended == suspended }
            #expect(center.isActive == active, what)
        }
        center.toolkitReports(false)
        try expect(suspended: true, active: false, "the window is behind another one")
        center.toolkitReports(true)
        try expect(suspended: false, active: true, "it is in front")
        center.isActive = false
        // Without a window that is shown, GTK's application counts as active.
        center.toolkitReports(true)
        try expect(suspended: true, active: false, "the program has hidden its window")
        center.followActivity()
        try expect(suspended: false, active: true, "it shows it again")
        center.isActive = false
        center.toolkitReports(false)
        center.followActivity()
        try expect(suspended: true, active: false, "it shows it behind another one")
        center.isActive = true
        try expect(suspended: false, active: true, "the program says so")
        center.toolkitReports(false)
        try expect(suspended: true, active: false, "the next report counts again")
        center.toolkitReports(true)
        center.suspended = true
        center.toolkitReports(false)
        center.toolkitReports(true)
        try expect(suspended: true, active: true, "the program has suspended itself")
        center.isActive = true
        try expect(suspended: false, active: true, "and takes it back")
        try center.settle()
    }
}
