# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Posts, as many, as large, and for as many as there may be."""

import json

from gi.repository import GLib

from hostile.cases import states
from hostile.templates import COALESCE, HOLD, NUMBER, numbered, padding, suspended
from wire import ERROR, add_observer, asked, asking, message, post

IMMEDIATELY = {"deliver-immediately": GLib.Variant("b", True)}


def flood(scene):
    """Posts without end and wants no answer."""
    connection = states.observers(scene, 1, states.NAME)
    contents = numbered(post(states.NAME, NUMBER), range(1000))
    scene.act()
    with scene.processes(lambda: states.pour(scene, contents)):
        crowd = states.Crowd([connection])
        while scene.going():
            crowd.read(0.1)


def flood_of_four(scene):
    """Posts without end from four processes, and nobody reads."""
    states.observers(scene, 1, states.NAME)
    contents = numbered(post(states.NAME, NUMBER), range(1000))
    scene.act()
    with scene.processes(*[lambda: states.pour(scene, contents)] * 4):
        states.pause_until(scene, lambda: False, 1000)


def unmatched_flood(scene):
    """Posts of ever other names that nobody observes, without end."""
    contents = numbered(post(states.NAMES), range(5000))
    scene.act()
    states.pour(scene, contents)


def large_posts(scene):
    """Posts notifications of 1 MiB without end, beside observers that are not read."""
    connection = states.observers(scene, 1, states.NAME)
    call = post(states.NAME, "", padding((1 << 20) - 100), answer=True)
    scene.ask(scene.connect(), call)
    size = 0
    while size < 1 << 20 and (received := connection.next_raw(5)) is not None:
        size = len(received)
    scene.reached("bytes", size, 1 << 20)
    scene.act()
    states.pour(scene, post(states.NAME, "", padding((1 << 20) - 100)))


def many(count, name=states.NAME, user_info=None, options=None, answer=True):
    """The call of PostMany with so many posts."""
    posts = [(name, str(index), user_info or {}, options or {}) for index in range(count)]
    return message("PostMany", GLib.Variant("(a(ssa{sv}a{sv}))", (posts,)), answer=answer)


def post_many(scene):
    """Posts 16,384 in a call, which a thousand observers of a client match."""
    connection = states.observers(scene, 1000, states.NAME)
    call = many(scene.much(16_384))
    outcomes = scene.value(scene.connect(), call)
    scene.reached("posts", sum(receivers == 1 for receivers, _ in outcomes), scene.much(16_384))
    crowd = states.Crowd([connection])
    poster = scene.connect()

    def act():
        poster.send(call)
        while scene.going() and not poster.discard():
            crowd.read(0.02)

    scene.repeat(act)


def post_many_unanswered(scene):
    """Sends PostMany with 16,384 posts each without end, and wants no answer."""
    states.observers(scene, 1, states.NAME)
    call = many(scene.much(16_384))
    outcomes = scene.value(scene.connect(), call)
    scene.reached("posts", len(outcomes), scene.much(16_384))
    scene.act()
    states.pour(scene, many(scene.much(16_384), answer=False))


def post_many_refused(scene):
    """Sends PostMany of which each post is refused."""
    call = many(scene.much(16_384), name="")
    connection = scene.connect()
    outcomes = scene.value(connection, call)
    scene.reached("refused", sum(bool(error) for _, error in outcomes), scene.much(16_384))
    scene.repeat(lambda: scene.ask(connection, call))


def post_many_too_many(scene):
    """Sends PostMany with more posts than a call may have."""
    call = many(16_385)
    connection = scene.connect()
    scene.reached("refused", int(connection.raw_answer_to(call)[1] == ERROR))
    scene.repeat(lambda: connection.raw_answer_to(call))


def to_all_of_one(scene):
    """Posts what all 16,384 observers of a client match, which reads."""
    connection = states.observers(scene, name=states.NAME)
    poster = scene.connect()
    contents = post(states.NAME) * 19 + post(states.NAME, answer=True)

    def act():
        poster.send(contents)
        poster.raw_answer(1)
        connection.serve()

    scene.repeat(act)


def to_all_of_one_unread(scene):
    """Posts what all 16,384 observers of a client match, which does not read."""
    states.observers(scene, name=states.NAME)
    scene.act()
    states.pour(scene, post(states.NAME) * 100)


def to_all(scene):
    """Posts what 240,000 observers of sixteen clients match."""
    connections = states.many_observers(scene, 15_000, 12, states.NAME)
    scene.fork(lambda: states.stay(*states.many_observers(scene, 15_000, 4, states.NAME)))
    scene.reach("observers", scene.much(15_000) * 16)
    crowd = states.Crowd(connections)
    poster = scene.connect()
    call = post(states.NAME, answer=True)

    def act():
        scene.ask(poster, call)
        crowd.read()

    scene.repeat(act)


def to_clients(scene):
    """Posts to 4,000 clients, which read."""
    connections = states.clients(scene, 4000)
    crowd = states.Crowd(connections)
    poster = scene.connect()
    contents = post(states.NAME) * 15 + post(states.NAME, answer=True)

    def act():
        poster.send(contents)
        while scene.going() and not poster.discard():
            crowd.read(0.01)

    scene.repeat(act)


def to_suspended(scene, options):
    """Posts to 4,000 suspended clients without end."""
    states.clients(scene, 4000, options=options, then=suspended(True, answer=False))
    poster = scene.connect()
    contents = numbered(post(states.NAME, NUMBER), range(15)) + post(states.NAME, answer=True)
    scene.repeat(lambda: (poster.send(contents), poster.raw_answer(1)))


def to_holding(scene):
    """Posts to 4,000 suspended clients that hold what comes."""
    to_suspended(scene, HOLD)


def to_coalescing(scene):
    """Posts to 4,000 suspended clients that keep the last of each object."""
    to_suspended(scene, COALESCE)


def immediately(scene):
    """Posts what is delivered at once to clients that are suspended and hold 130,000."""
    connection = states.holder(scene)
    crowd = states.Crowd([connection])
    poster = scene.connect()
    contents = post(states.NAME, "", {}, IMMEDIATELY) * 99 + post(states.NAME, "", {}, IMMEDIATELY, answer=True)

    def act():
        poster.send(contents)
        poster.raw_answer(1)
        crowd.read()

    scene.repeat(act)


def json_post(text, answer=True):
    """The call of PostJSON with this text."""
    return message("PostJSON", GLib.Variant("(sss)", (states.NAME, "", text)), answer=answer)


def json_deep(scene):
    """Posts JSON as deep as is allowed, and far deeper."""
    connection = states.observers(scene, 1, states.NAME)
    allowed = json_post('{"a":' * 15 + "1" + "}" * 15)
    scene.value(scene.connect(), allowed)
    scene.reached("depth", 15, 15)
    calls = [allowed, json_post('{"a":' * 10_000 + "1" + "}" * 10_000), json_post('{"a":' + "[" * 65_000 + "}")]
    poster = scene.connect()

    def act():
        for call in calls:
            poster.raw_answer_to(call)
        connection.serve()

    scene.repeat(act)


def json_large(scene):
    """Posts JSON of the largest size, with thousands of members, escapes and numbers."""
    connection = states.observers(scene, 1, states.NAME)
    texts = [
        json.dumps({f"k{index}": 1 for index in range(5500)}),
        json.dumps({"k": [0.1] * 12_000}),
        '{"k":"' + "\\u00e9" * 10_900 + '"}',
        json.dumps({"k": {"$data": "QUJD" * 16_000}}),
    ]
    for text in texts:
        scene.value(scene.connect(), json_post(text))
    scene.reached("bytes", min(map(len, texts)), 60_000)
    calls = b"".join(json_post(text, answer=False) for text in texts)
    last = json_post(texts[0])
    poster = scene.connect()

    def act():
        poster.send(calls * 5 + last)
        poster.raw_answer(1)
        connection.serve()

    scene.repeat(act)


def refused_posts(scene):
    """Posts what is refused, with answers and without, without end."""
    calls = [
        post(""), post("x" * 1025), post(states.NAME, "o" * 4097), post(states.NAME, "", {"p": GLib.Variant("o", "/")}),
        post(states.NAME, "", {}, {"nothing": GLib.Variant("b", True)}),
    ]
    connection = scene.connect()
    scene.reached("refused", sum(connection.raw_answer_to(asking(call, 1))[1] == ERROR for call in calls), len(calls))
    contents = b"".join(calls) * 100 + asking(calls[0], 1)
    scene.repeat(lambda: (connection.send(contents), connection.raw_answer(1)))


def too_large(scene):
    """Posts what is larger than a notification may be, and as deep as D-Bus can be."""
    deep = GLib.Variant("s", "deep")
    for _ in range(18):
        deep = GLib.Variant("a{sv}", {"k": deep})
    calls = [
        post(states.NAME, "", padding((1 << 20) + 1), answer=True),
        post(states.NAME, "", padding(8 << 20), answer=True),
        post(states.NAME, "", {"d": deep}, answer=True),
    ]
    connection = scene.connect()
    scene.reached("refused", sum(connection.raw_answer_to(call)[1] == ERROR for call in calls), len(calls))
    scene.repeat(lambda: [connection.raw_answer_to(call) for call in calls])


def many_members(scene):
    """Posts user infos of 1 MiB with tens of thousands of members."""
    states.observers(scene, 1, states.NAME)
    members = {f"k{index}": GLib.Variant("y", 1) for index in range(40_000)}
    connection = scene.connect()
    call = post(states.NAME, "", members, answer=True)
    scene.value(connection, call)
    scene.reached("members", len(members), 40_000)
    scene.repeat(lambda: scene.ask(connection, call))


def answers_unread(scene):
    """Posts with answers that it never reads, up to the limit of bytes, and goes on."""
    call = post(states.NAME, answer=True)
    for connection in scene.several(4, receive_buffer=4096):
        scene.send(connection, asked([call], scene.much(40_000)), 10)
    scene.reach("answer-bytes", scene.much(8 << 20))
    scene.act()
    states.pour_calls(scene, [call], 1000, 1)


def observe_all(scene):
    """Clients that observe everything with every option, and post without end."""
    connections = states.many_observers(scene, 1000, 20, "")
    scene.reach("observers", scene.much(1000) * 20)
    crowd = states.Crowd(connections)
    contents = b"".join(add_observer("", str(index)) for index in range(10)) + post(states.NAME) * 20
    poster = scene.connect()
    last = post(states.NAME, answer=True)

    def act():
        poster.send(contents + last)
        while scene.going() and not poster.discard():
            crowd.read(0.01)

    scene.repeat(act)


CASES = {
    "post-flood": flood,
    "post-flood-of-four": flood_of_four,
    "unmatched-flood": unmatched_flood,
    "large-posts": large_posts,
    "post-many": post_many,
    "post-many-unanswered": post_many_unanswered,
    "post-many-refused": post_many_refused,
    "post-many-too-many": post_many_too_many,
    "to-all-of-one": to_all_of_one,
    "to-all-of-one-unread": to_all_of_one_unread,
    "to-all": to_all,
    "to-clients": to_clients,
    "to-holding": to_holding,
    "to-coalescing": to_coalescing,
    "immediately": immediately,
    "json-deep": json_deep,
    "json-large": json_large,
    "refused-posts": refused_posts,
    "too-large": too_large,
    "many-members": many_members,
    "answers-unread": answers_unread,
    "observe-all": observe_all,
}
