# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Posts that wait in their posters' queues, up to the limits, and what takes them out of there."""

from hostile.cases import states
from hostile.templates import NUMBER, name_and_object, numbered, style
from wire import asking, post

COUNT = states.QUEUED_PER_CLIENT - 1000

#: Three times as many have seven eighths of the bytes of all queues, which is what one process gets.
LAST_WILLS = 80_000


def waiting(scene, wanted):
    """Says how many posts wait in queues."""
    scene.reached("queued-posts", scene.statistics()["queued-posts"], wanted)


def withdraw_all(scene, name):
    """Has 130,000 posts of a style wait, withdraws all of them in a call, and again."""
    connection = scene.connect()
    states.queued(scene, connection, style("at-exit"))
    waiting(scene, scene.much(COUNT))
    contents = numbered(post(states.NAME, NUMBER, {}, style(name)), range(scene.much(COUNT)))
    withdraw = name_and_object("WithdrawPosts")
    scene.repeat(lambda: (scene.ask(connection, withdraw), connection.send(contents)))


def withdraw_asap(scene):
    """Sends 130,000 posts asap and withdraws all of them in a call, beside as many at-exit."""
    withdraw_all(scene, "asap")


def withdraw_at_exit(scene):
    """Sends 130,000 posts at-exit and withdraws all of them in a call, and again."""
    withdraw_all(scene, "at-exit")


def withdraw_name(scene):
    """Withdraws posts of one name after the other, of 130,000 that wait."""
    connection = scene.connect()
    options = style("at-exit")
    states.queued(scene, connection, options, name=states.NAMES, object_="")
    waiting(scene, scene.much(COUNT))
    withdraw = name_and_object("WithdrawPosts", states.NAMES, answer=False)
    again = post(states.NAMES, "", {}, options)

    def act():
        scene.fill(connection, withdraw, 1000)
        scene.fill(connection, again, 1000)

    scene.repeat(act)


def withdraw_object(scene):
    """Withdraws posts of one object after the other, and of objects that none has, of 130,000 that wait."""
    connection = scene.connect()
    states.queued(scene, connection, style("at-exit"))
    waiting(scene, scene.much(COUNT))
    found = name_and_object("WithdrawPosts", "", NUMBER, answer=False)
    missing = name_and_object("WithdrawPosts", "", f"no {NUMBER}", answer=False)
    scene.repeat(lambda: (scene.fill(connection, found, 100), scene.fill(connection, missing, 100)))


def asap_flood(scene):
    """Posts asap without end, with an observer that reads."""
    style_flood(scene, "asap")


def when_idle_flood(scene):
    """Posts when-idle without end, with an observer that reads."""
    style_flood(scene, "when-idle")


def style_flood(scene, name):
    """Posts with a style without end, with an observer that reads."""
    connection = states.observers(scene, 1, states.NAME)
    contents = numbered(post(states.NAME, NUMBER, {}, style(name)), range(1000))
    scene.act()
    with scene.processes(lambda: states.pour(scene, contents)):
        crowd = states.Crowd([connection])
        while scene.going():
            crowd.read(0.1)


def leave_last_wills(scene):
    """Leaves 240,000 posts at-exit of three connections by ending, and again."""
    observer = states.observers(scene, 1, states.NAME)

    def leave_behind():
        connections = [scene.connect() for _ in range(3)]
        for connection in connections:
            states.queued(scene, connection, style("at-exit"), LAST_WILLS)
        states.stay(*connections)

    pid = scene.fork(leave_behind)
    wanted = scene.much(LAST_WILLS) * 3
    scene.reach("queued-posts", wanted, 15)
    scene.act()
    crowd = states.Crowd([observer])
    while scene.going():
        scene.kill([pid])
        pid = scene.fork(leave_behind)
        until = scene.statistics()["posted"] + wanted
        states.pause_until(scene, lambda until=until: crowd.read() < 0 or scene.statistics()["posted"] >= until)
    scene.kill([pid])


def coalesce_names(scene):
    """Posts of 130,000 names that wait and coalesce, each again and again."""
    connection = scene.connect()
    options = style("at-exit", ["name"])
    states.queued(scene, connection, options, name=states.NAMES, object_="")
    waiting(scene, scene.much(COUNT))
    again = post(states.NAMES, "", {}, options)
    scene.repeat(lambda: scene.fill(connection, again, 2000, scene.random.randrange(scene.much(100_000))))


def coalesce_by_turns(scene):
    """Posts that coalesce by name, by object and by both, in turns, beside 130,000 that wait."""
    connection = scene.connect()
    states.queued(scene, connection, style("at-exit", ["name", "object"]))
    waiting(scene, scene.much(COUNT))
    kinds = [post(states.NAME, NUMBER, {}, style("at-exit", on)) for on in (["name", "object"], ["object"])]
    whole = asking(post(states.NAME, "", {}, style("at-exit", ["name"])), 1)

    def act():
        for kind in kinds:
            scene.fill(connection, kind, 2000)
        scene.ask(connection, whole)
        states.queued(scene, connection, style("at-exit", ["name", "object"]), 20_000)

    scene.repeat(act)


def hasten(scene):
    """Makes 130,000 posts that wait for the idle service urgent with posts asap that coalesce with them."""
    connection = scene.connect()
    states.queued(scene, connection, style("at-exit"))
    waiting(scene, scene.much(COUNT))
    idle = post(states.NAMES, "", {}, style("when-idle", ["name"]))
    asap = post(states.NAMES, "", {}, style("asap", ["name"]))
    scene.ask(connection, name_and_object("WithdrawPosts"))
    scene.repeat(lambda: (scene.fill(connection, idle, 4000), scene.fill(connection, asap, 4000)))


def full_queue(scene):
    """Posts at-exit where the queue is full, and reads the errors."""
    connection = scene.connect()
    states.queued(scene, connection, style("at-exit"), states.QUEUED_PER_CLIENT)
    waiting(scene, scene.much(states.QUEUED_PER_CLIENT))
    more = post(states.NAME, NUMBER, {}, style("at-exit"), answer=True)
    scene.repeat(lambda: scene.ask_all(connection, [more], 100))


CASES = {
    "withdraw-asap": withdraw_asap,
    "withdraw-at-exit": withdraw_at_exit,
    "withdraw-name": withdraw_name,
    "withdraw-object": withdraw_object,
    "asap-flood": asap_flood,
    "when-idle-flood": when_idle_flood,
    "leave-last-wills": leave_last_wills,
    "coalesce-names": coalesce_names,
    "coalesce-by-turns": coalesce_by_turns,
    "hasten": hasten,
    "full-queue": full_queue,
}
