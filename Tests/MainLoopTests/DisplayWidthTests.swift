// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@Suite("The width of text on a terminal", .limited)
struct DisplayWidthTests {
    @Test(
        "Wide characters take two columns, and combining characters take none",
        arguments: [
            ("", 0), ("bell", 4), ("Größe", 5), ("Gro\u{308}ße", 5), ("鐘楼", 4), ("a鐘b", 4), ("한글", 4),
            ("🔔", 2), ("\u{200B}", 0), ("e\u{301}\u{20DD}", 1), ("שָׁלוֹם", 4),
        ])
    func columns(text: String, columns: Int) {
        #expect(DisplayWidth.columns(of: text) == columns)
    }

    @Test("A prefix fits into its columns, and splits neither wide characters nor accents from their letters")
    func prefix() {
        #expect(DisplayWidth.prefix(of: "鐘楼", columns: 3) == "鐘")
        #expect(DisplayWidth.prefix(of: "鐘楼", columns: 4) == "鐘楼")
        #expect(DisplayWidth.prefix(of: "鐘楼", columns: 1) == "")
        #expect(DisplayWidth.prefix(of: "ae\u{301}b", columns: 2) == "ae\u{301}")
        #expect(DisplayWidth.prefix(of: "ab", columns: 0) == "")
        #expect(DisplayWidth.prefix(of: "ab", columns: 9) == "ab")
    }
}
