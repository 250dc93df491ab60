# SPDX-License-Identifier: Apache-2.0
"""Tests of places.py: what is mutated, what is not, and what the source looks like then; and of what is in a sample."""

import unittest

import mutants as tool
import places


def mutants(text):
    return places.places("A.swift", text)


def kinds(text):
    return [mutant.what for mutant in mutants(text)]


class Expressions(unittest.TestCase):
    def test_binary_operators(self):
        self.assertEqual(kinds("func f() { let a = b < c }"), ["< becomes <="])
        self.assertEqual(kinds("func f() { let a = b == nil }"), ["== becomes !="])
        self.assertEqual(kinds("func f() { let a: Deque<Peer> = g<Peer>() }"), [])
        self.assertEqual(kinds("func f(a: Int) -> Int { a - b }"), ["- becomes +"])
        self.assertEqual(kinds("let a = -b"), [])
        self.assertEqual(kinds('let a = b + "c" + d'), [])
        self.assertEqual(kinds("let a = b + [c]"), [])

    def test_prefix_and_postfix(self):
        self.assertEqual(kinds("func f() { let a = !b }"), ["! left out"])
        self.assertEqual(kinds("func f() { let a = b!.c }"), [])
        self.assertEqual(kinds("func f() { let a = b[c]!.d }"), [])
        self.assertEqual(kinds("func f() { let a = b != c }"), ["!= becomes =="])

    def test_literals(self):
        self.assertEqual(kinds("let a = 64 << b"), ["64 becomes 65"])
        self.assertEqual(kinds("let a = 16_384 << b"), ["16_384 becomes 16385"])
        self.assertEqual(kinds("let a = b.0"), [])
        self.assertEqual(kinds("let a = 1.5"), [])
        self.assertEqual(kinds("let a = .true"), [])
        self.assertEqual(kinds("enum A: Int {\n    case a = 1\n}"), [])
        self.assertEqual(kinds("let a = true; b"), ["true becomes false"])

    def test_strings_are_left_alone(self):
        self.assertEqual(kinds(r'let a = "1 < 2 \(b["3"] + 4) \" 5"'), [])
        self.assertEqual(kinds('let a = """\n    1 + 2\n    """'), [])
        self.assertEqual(kinds("let a = b  // 1 + 2"), [])

    def test_declarations_and_patterns(self):
        self.assertEqual(kinds("static func < (left: A, right: A) -> Int {\n    left.b < right.b\n}"), ["< becomes <="])
        self.assertEqual(
            kinds("func f() {\n    switch a {\n    case (true, 1): b(2)\n    default: break\n    }\n}"),
            ["call left out", "2 becomes 3"])

    def test_ranges(self):
        self.assertEqual(kinds("func f() { for a in b..<c { return } }"), ["..< takes one more"])
        self.assertEqual(kinds("func f() { g(a[..<b]) }"), ["call left out"])

    def test_results(self):
        self.assertEqual(kinds("var a: Bool { b.isEmpty }"), ["result turned round"])
        self.assertEqual(
            kinds("func f() -> Bool {\n    guard let a else { return false }\n    return a.b\n}"),
            ["false becomes true", "result turned round"])
        self.assertEqual(kinds("func f() -> Int {\n    return a.b\n}"), [])


class Conditions(unittest.TestCase):
    def test_clauses(self):
        self.assertEqual(
            kinds("func f() { if a, let b = c, d.e(f, g) { return } }"), ["if turned round", "if turned round (2)"])
        self.assertEqual(kinds("func f() { guard case .a = b, c else { return } }"), ["guard turned round"])
        self.assertEqual(kinds("func f() { for a in b where c { return } }"), ["where turned round"])
        self.assertEqual(kinds("func f<A>(a: A) where A: B { return }"), [])

    def test_what_the_operator_says_already(self):
        self.assertEqual(kinds("func f() { if a == b { return } }"), ["== becomes !="])
        self.assertEqual(kinds("func f() { if !a { return } }"), ["! left out"])
        self.assertEqual(kinds("func f() { if !a || b { return } }"), ["if turned round", "! left out", "|| becomes &&"])


class Statements(unittest.TestCase):
    def test_left_out(self):
        self.assertEqual(kinds("func f() {\n    a.b()\n    c = d\n}"), ["call left out", "assignment left out"])
        self.assertEqual(kinds("func f() {\n    a(\n        b)\n        .c()\n    return\n}"), ["call left out"])
        self.assertEqual(kinds("func f() {\n    (a, b) = (c, d)\n}"), ["assignment left out"])
        self.assertEqual(kinds("func f() {\n    let a = b()\n}"), [])

    def test_values_are_no_statements(self):
        self.assertEqual(kinds("func f() -> Int {\n    a()\n}"), [])
        self.assertEqual(kinds("var a: Int { b() }"), [])
        self.assertEqual(kinds("init() {\n    a = b\n}"), [])
        self.assertEqual(kinds("func f() {\n    let a = b.map { c($0) }\n}"), [])

    def test_closures_and_cases(self):
        self.assertEqual(kinds("func f() {\n    let a = b { c, d in d.e(c) }\n}"), ["call left out"])
        self.assertEqual(kinds("func f() {\n    switch a {\n    case .b: c()\n    }\n}"), ["call left out"])

    def test_what_only_notices_faults(self):
        self.assertEqual(kinds("func f() {\n    invariant(a > 1)\n    try require(b == 2)\n}"), [])
        self.assertEqual(kinds("func checkInvariants() {\n    if a > 1 { b() }\n    func c() { d() }\n}"), [])
        self.assertEqual(kinds("func f() throws(BrokenInvariant) {\n    if a > 1 { b() }\n}"), [])
        self.assertEqual(kinds("func f() {\n    #if CARILLON_PLANTED\n        a()\n    #else\n        b()\n    #endif\n}"),
                         ["call left out"])

    def test_memory_that_is_used_again(self):
        self.assertEqual(kinds("func f() {\n    a.b(keepingCapacity: c(1) > 2)\n}"), ["call left out"])
        self.assertEqual(kinds("func f() {\n    a.b(keepingCapacity: true, 1)\n}"), ["call left out", "1 becomes 2"])

    def test_lines_of_the_log(self):
        self.assertEqual(kinds('func f() {\n    Log.warning("\\(a)", ["B": c(1)])\n    d()\n}'), ["call left out"])
        self.assertEqual(kinds("func f() {\n    if let a = Log.throttle(&b, times: 1 + 2) { c() }\n}"), ["call left out"])

    def test_places_outlive_moves(self):
        text = "func f() {\n    a()\n}"
        before, after = mutants(text)[0], mutants("\n\n" + text)[0]
        self.assertEqual(before.key, after.key)
        self.assertEqual(before.key, ("A.swift", "f", "a()", "call left out"))
        self.assertNotEqual(before.line, after.line)


class Rewriting(unittest.TestCase):
    def test_nesting(self):
        text = "func f() {\n    if a < 1, b { c = d + e }  // why\n}"
        found = mutants(text)
        for number, mutant in enumerate(found, 1):
            mutant.number = number
        by = {mutant.what: mutant.number for mutant in found}
        expected = (
            f"func f() {{\n    if mutantFlip({by['if turned round']}, a {places.operator_name(by['< becomes <='])} "
            f"(mutant({by['1 becomes 2']}) ? 2 : 1)), mutantFlip({by['if turned round (2)']}, b) {{ "
            f"if !mutant({by['assignment left out']}) {{ c = d {places.operator_name(by['+ becomes -'])} e }} }}"
            "  // why\n}"
        )
        self.assertEqual(places.rewrite(text, found), expected)

    def test_one_alone(self):
        text = "func f() {\n    a()\n    b()\n}"
        found = mutants(text)
        found[1].number = 17
        self.assertEqual(places.rewrite(text, found[1:]), "func f() {\n    a()\n    if !mutant(17) { b() }\n}")

    def test_operators_are_different(self):
        names = [places.operator_name(number) for number in range(1, 5000)]
        self.assertEqual(len(set(names)), len(names))


class Samples(unittest.TestCase):
    def test_an_edit_leaves_the_rest_of_a_sample(self):
        lines = [f"    let a{n % 7} = {n} + b" for n in range(60)] + ["    let a = 1 + b"] * 3
        before = mutants("func f() {\n" + "\n".join(lines) + "\n}")
        after = mutants("func f() {\n" + "\n".join(lines[5:] + ["    let c = 9"]) + "\n}")
        kept = {mutant.key for mutant in before} & {mutant.key for mutant in after}

        def order(each):
            return [mutant.key for mutant in tool.in_order_of(3, each) if mutant.key in kept]

        self.assertGreater(len(kept), 50)
        self.assertEqual(order(before), order(after))
        self.assertNotEqual(order(before), [mutant.key for mutant in before if mutant.key in kept])
        self.assertNotEqual(order(before), [mutant.key for mutant in tool.in_order_of(4, before) if mutant.key in kept])


class Equivalents(unittest.TestCase):
    def test_all_are_in_the_source(self):
        keys = {mutant.key for mutant in tool.all_mutants()}
        self.assertEqual([key for key in tool.read_equivalents() if key not in keys], [])


if __name__ == "__main__":
    unittest.main()
