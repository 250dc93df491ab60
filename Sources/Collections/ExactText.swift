/// A text that equals another only byte for byte.
///
/// Swift's `String` takes canonically equivalent texts for equal ("é" and "e" with an accent that combines). Between
/// processes, in any language, two names are the same name when their UTF-8 is the same.
public struct ExactText: Hashable, Sendable {
    public let text: String

    public init(_ text: String) {
        self.text = text
    }

    public static func == (left: ExactText, right: ExactText) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        hasher.combine(0xFF as UInt8)  // in no UTF-8: tells where the text ends
    }
}
