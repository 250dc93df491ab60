# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The introspection data of the running service equals the documented XML (B1), whose path is in
CARILLON_INTERFACE_XML, but for comments."""

import os
import xml.etree.ElementTree

import carillon_interop
from carillon_interop import INTERFACE, INTROSPECTABLE, OBJECT_PATH, PEER, PROPERTIES, Gio

DEFAULT_PATH = os.path.join(os.path.dirname(__file__), "..", "..", "dbus-interfaces", INTERFACE + ".xml")

STANDARD_MEMBERS = {
    INTROSPECTABLE: {"Introspect": ["out s"]},
    PEER: {"Ping": [], "GetMachineId": ["out s"]},
    PROPERTIES: {"Get": ["in s", "in s", "out v"], "GetAll": ["in s", "out a{sv}"], "Set": ["in s", "in s", "in v"]},
}


def documented_xml():
    with open(os.environ.get("CARILLON_INTERFACE_XML", DEFAULT_PATH), encoding="utf-8") as file:
        return file.read()


def interface(text, name=INTERFACE):
    """One interface of introspection XML as plain values: members by kind and name, arguments in their order."""
    found = [each for each in xml.etree.ElementTree.fromstring(text).findall("interface") if each.get("name") == name]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} interfaces {name} in {text}")
    members = {}
    for member in found[0]:
        if member.tag == "annotation":
            continue
        default_direction = "out" if member.tag == "signal" else "in"
        description = {"annotations": annotations(member)}
        if member.tag == "property":
            description |= {"type": member.get("type"), "access": member.get("access")}
        else:
            description["arguments"] = [
                (argument.get("name"), argument.get("type"), argument.get("direction", default_direction))
                for argument in member.findall("arg")
            ]
            description["annotations of arguments"] = [annotations(argument) for argument in member.findall("arg")]
        key = f"{member.tag} {member.get('name')}"
        if key in members:
            raise AssertionError(f"{key} is there twice")
        members[key] = description
    members["annotations"] = annotations(found[0])
    return members


def annotations(element):
    return {each.get("name"): each.get("value") for each in element.findall("annotation")}


class Introspection(carillon_interop.TestCase):
    def test_equals_the_documentation(self):
        documented, real = interface(documented_xml()), interface(self.control.introspect())
        self.assertEqual(sorted(real), sorted(documented), "the members")
        for member, description in documented.items():
            with self.subTest(member):
                self.assertEqual(real[member], description)

    def test_is_accepted_by_gio(self):
        for text in (documented_xml(), self.control.introspect()):
            node = Gio.DBusNodeInfo.new_for_xml(text)
            info = node.lookup_interface(INTERFACE)
            self.assertIsNotNone(info)
            self.assertEqual(info.lookup_method("Post").out_args[0].signature, "u")

    def test_standard_interfaces(self):
        text = self.control.introspect()
        for name, methods in STANDARD_MEMBERS.items():
            with self.subTest(name):
                members = interface(text, name)
                for method, arguments in methods.items():
                    described = members[f"method {method}"]["arguments"]
                    self.assertEqual([f"{direction} {type_}" for _, type_, direction in described], arguments)

    def test_parents_list_their_children(self):
        self.assert_introspectable_children(self.control.introspect)

    def test_the_object_has_no_children(self):
        nodes = xml.etree.ElementTree.fromstring(self.control.introspect()).findall("node")
        self.assertEqual(nodes, [], f"children of {OBJECT_PATH}")


if __name__ == "__main__":
    carillon_interop.main()
