// SPDX-License-Identifier: Apache-2.0
import Glibc

// What tools/mutants puts into the copy that it mutates: the switches of the mutants. An operator that is mutated gets
// one of its own there, declared as in `mutants.py`.

/// The mutant that is on in this process; 0 is none.
private let number = getenv("CARILLON_MUTANT").flatMap { Int(String(cString: $0)) } ?? 0

public func mutant(_ other: Int) -> Bool { number == other }

public func mutantFlip(_ number: Int, _ condition: Bool) -> Bool { mutant(number) ? !condition : condition }

public func mutantLeast<Value: Comparable>(_ number: Int, _ values: Value...) -> Value {
    mutant(number) ? values.max()! : values.min()!
}

public func mutantGreatest<Value: Comparable>(_ number: Int, _ values: Value...) -> Value {
    mutant(number) ? values.min()! : values.max()!
}
