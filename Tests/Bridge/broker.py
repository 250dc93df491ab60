# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A mosquitto of the lab's own, on a machine of its own, that knows hosts by their certificates."""

import json
import os
import re
import shutil
import subprocess

from programs import Lines, LabError, Program, wait_until

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "mosquitto"

#: Who writes what, and that everybody of the realm reads all of it. As docs/beyond.md shows it.
ACCESS = """\
pattern write carillon/1/+/%u/#
pattern read carillon/1/#
pattern read $SYS/#
"""

#: Keeps on disk what it has at any moment, for brokers that are killed. It writes all of it each time.
SAVED = """\
autosave_on_changes true
autosave_interval 1
"""

#: What is not TLS, certificates and where things are.
SETTINGS = """\
allow_anonymous false
max_queued_messages 10000
max_inflight_messages 20
set_tcp_nodelay true
persistence true
sys_interval 1
log_type all
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""


class Broker:
    """Started, ended and started again with the same files. What it logs is read for who is connected and subscribed."""

    def __init__(self, lab, name="broker", settings="", access=ACCESS, tls=True):
        self.lab = lab
        self.name = name
        self.tls = tls
        self.settings = settings
        #: The files of its certificate and key, if they are not those of its name.
        self.server_certificate = None
        self.directory = os.path.join(lab.directory, name)
        self.log = os.path.join(self.directory, "mosquitto.log")
        self.program = None
        #: The client id of each user that is connected, and of each that ever was; the topic filters of each client id.
        self.clients = {}
        self.ids = {}
        self.filters = {}
        #: Every subscription and its end, in order: ("subscribe" or "unsubscribe", client id, filter).
        self.changes = []
        self._lines = Lines(self.log)
        os.makedirs(os.path.join(self.directory, "state"))
        self.address = lab.network.add(name)
        with open(os.path.join(self.directory, "acl"), "w", encoding="utf-8") as file:
            file.write(access)
        self.start()

    def _configuration(self):
        address, port = self.lab.network.listen(self.name)
        lines = [f"listener {port} {address}"]
        if self.tls:
            certificate, key = self.server_certificate or self.lab.authority.server(
                self.name, self.lab.network.server_addresses(self.name))
            lines += [f"cafile {self.lab.authority.file}", f"certfile {certificate}", f"keyfile {key}",
                      "require_certificate true", "use_identity_as_username true"]  # fmt: skip
        elif "password_file" not in self.settings:
            lines.append("allow_anonymous true")
        if os.geteuid() == 0:
            lines.append("user root")  # It would leave its own directory's owner otherwise.
        lines += [f"acl_file {self.directory}/acl", f"persistence_location {self.directory}/state/",
                  f"log_dest file {self.log}"]  # fmt: skip
        given = {line.split()[0] for line in [*lines, *self.settings.splitlines()] if line.strip()}
        lines += [line for line in SETTINGS.splitlines() if line.split()[0] not in given]
        return "\n".join([*lines, self.settings])

    def start(self):
        path = os.path.join(self.directory, "mosquitto.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._configuration())
        before = self.text().count(" running")
        self.program = Program(
            self.name, self.lab.network.command(self.name, [MOSQUITTO, "-c", path]), self.lab.environment(),
            os.path.join(self.directory, "output.log"),
        )  # fmt: skip
        self.lab.programs.append(self.program)

        def runs():
            if not self.program.is_running:
                raise LabError(f"mosquitto ended:\n{self.program.tail()}\n{self.tail()}")
            return self.text().count(" running") > before

        wait_until(runs, "mosquitto runs")

    def kill(self):
        self.program.kill()

    def stop(self):
        self.program.stop()

    def freeze(self):
        self.program.freeze()

    def thaw(self):
        self.program.thaw()

    # What it logged

    def text(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def tail(self, lines=30):
        return "\n".join(self.text().splitlines()[-lines:])

    def read_log(self):
        """Takes up what has been logged since."""
        for line in self._lines.take():
            if match := re.search(r"New (?:client|bridge) connected from \S+ as (.+) \(p\d, c\d, k\d+(?:, u'(.*)')?\)", line):
                self.clients[match.group(2)] = self.ids[match.group(2)] = match.group(1)
            elif match := re.search(r"Client (.+?) (?:disconnected|closed its connection|has exceeded timeout)", line):
                self.clients = {user: client for user, client in self.clients.items() if client != match.group(1)}
            elif match := re.fullmatch(r"[-0-9T:]+: (\S+) [012] (\S+)", line):
                self._change("subscribe", *match.groups())
            elif match := re.fullmatch(r"[-0-9T:]+: (\S+) ((?:carillon|zigbee2mqtt|shellies|owntracks|tasmota|\$SYS)/\S+|#)", line):
                self._change("unsubscribe", *match.groups())

    def _change(self, what, client, topic):
        self.changes.append((what, client, topic))
        filters = self.filters.setdefault(client, set())
        (filters.add if what == "subscribe" else filters.discard)(topic)

    def subscriptions(self, user):
        """The topic filters of whoever is, or was last, connected as this user. A session that stays has them still."""
        self.read_log()
        return set(self.filters.get(self.ids.get(user), ()))

    def wait_saved(self):
        """Waits until it has written its state behind all that it has logged so far, with SAVED."""
        wait_until(
            lambda: self.text().rfind(": Saving in-memory database") > self.text().rfind(": Received PUBLISH"),
            "mosquitto saves its state",
        )  # fmt: skip
        # It does one thing after the other: who is served now comes behind the end of that.
        words = [*self.client_words("mosquitto_sub", "lab"), "-t", "none", "-E"]
        subprocess.run(
            self.lab.network.command(self.name, words), env=self.lab.environment(), timeout=60, check=True,
            capture_output=True,
        )  # fmt: skip

    def wait_connected(self, user):
        def is_connected():
            self.read_log()
            return user in self.clients

        wait_until(is_connected, lambda: f"{user} is connected with the broker, whose log ends\n{self.tail()}")

    def wait_subscribed(self, user, *topics):
        """Waits until this user is subscribed to all of these filters."""
        wait_until(
            lambda: set(topics) <= self.subscriptions(user),
            lambda: f"{user} is subscribed to {topics}; it is to {sorted(self.subscriptions(user))}",
        )  # fmt: skip

    def wait_subscribed_client(self, prefix, *topics):
        """The same for the client whose id begins so: without certificates the broker knows no users, and several bridges
        may be of one."""
        def subscribed():
            self.read_log()
            return set().union(*(filters for client, filters in self.filters.items() if client.startswith(prefix)))

        wait_until(
            lambda: set(topics) <= subscribed(),
            lambda: f"{prefix}… is subscribed to {topics}; it is to {sorted(subscribed())}, and the log ends\n{self.tail()}",
        )  # fmt: skip

    # Programs without Carillon

    def client_words(self, program, user):
        """mosquitto_pub or mosquitto_sub on the machine of the broker, as this user."""
        address, port = self.lab.network.listen(self.name)
        words = [program, "-V", "mqttv5", "-h", address, "-p", str(port)]
        if self.tls:
            certificate, key = self.lab.authority.client(user)
            words += ["--cafile", self.lab.authority.file, "--cert", certificate, "--key", key]
        return words

    def publish(self, user, topic, payload, *options, properties=(), lines=False):
        """Publishes with mosquitto_pub, quality of service 1; `lines` makes each line a message. Returns the exit status, and
        what it said: of a message that the broker refuses that is all."""
        words = self.client_words("mosquitto_pub", user)
        words += ["-q", "1", "-t", topic, *options]
        for key, value in properties:
            words += ["-D", "publish", "user-property", key, value]
        words += ["-l"] if lines else ["-s"] if payload else ["-n"]
        done = subprocess.run(
            self.lab.network.command(self.name, words), input=payload.encode() if isinstance(payload, str) else payload,
            capture_output=True, timeout=60, env=self.lab.environment(), check=False,
        )  # fmt: skip
        return done.returncode, done.stderr.decode(errors="replace")

    def retain(self, user, payloads, seconds=120):
        """Retains payloads by topic, thousands in a second."""
        address, port = self.lab.network.listen(self.name)
        words = ["/usr/bin/python3", os.path.join(os.path.dirname(__file__), "publisher.py"), address, str(port)]
        if self.tls:
            words += [self.lab.authority.file, *self.lab.authority.client(user)]
        lines = "".join(f"{topic}\t{payload}\n" for topic, payload in payloads.items())
        done = subprocess.run(
            self.lab.network.command(self.name, words), input=lines, capture_output=True, text=True, timeout=seconds,
            env=self.lab.environment(), check=False,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"{user} could not publish {len(payloads)} messages: {done.stderr}")

    def listen(self, user, *topics, options=()):
        """A mosquitto_sub that goes on; `messages` of what it returns has what came."""
        words = [*self.client_words("mosquitto_sub", user), "-q", "1", "-F", "%j", *options]
        for topic in topics:
            words += ["-t", topic]
        return Listener(self, user, words, topics)

    def retained(self, user, topic):
        """What is retained there, by topic."""
        words = [*self.client_words("mosquitto_sub", user), "-q", "1", "-F", "%j", "-t", topic, "--retained-only", "-W", "1"]
        for attempt in range(4):
            try:
                done = subprocess.run(
                    self.lab.network.command(self.name, words), capture_output=True, text=True, timeout=15,
                    env=self.lab.environment(), check=False,
                )  # fmt: skip
                break
            except subprocess.TimeoutExpired:
                # Where its second is over before it is connected it waits for ever.
                if attempt == 3:
                    raise
        messages = [Message(json.loads(line)) for line in done.stdout.splitlines()]
        return {message.topic: message for message in messages}


class Message:
    """What mosquitto_sub printed of a message."""

    def __init__(self, printed):
        self.topic = printed["topic"]
        self.payload = printed.get("payload", "")
        self.is_retained = bool(printed["retain"])
        self.quality = printed["qos"]
        properties = printed.get("properties", {})
        self.content_type = properties.get("content-type")
        self.expiry = properties.get("message-expiry-interval")
        self.user_properties = properties.get("user-properties", {})

    @property
    def json(self):
        return json.loads(self.payload)

    def __repr__(self):
        return f"<{self.topic} {self.payload!r} {self.user_properties}>"


class Listener:
    """A mosquitto_sub that goes on."""

    def __init__(self, broker, user, words, topics):
        lab = broker.lab
        output = lab.file(f"mosquitto-sub-{user}.jsonl")
        before = len([change for change in self._changes(broker) if change[0] == "subscribe"])
        self.program = Program(
            f"mosquitto_sub of {user}", lab.network.command(broker.name, words), lab.environment(),
            lab.file(f"mosquitto-sub-{user}.log"), output=output,
        )  # fmt: skip
        lab.programs.append(self.program)
        self._lines = Lines(output)
        self._messages = []
        wait_until(
            lambda: {change[2] for change in self._changes(broker)[before:]} >= set(topics)
            or not self.program.is_running,
            lambda: f"mosquitto_sub is subscribed to {topics}:\n{self.program.tail()}",
        )

    @staticmethod
    def _changes(broker):
        broker.read_log()
        return [change for change in broker.changes if change[0] == "subscribe"]

    @property
    def messages(self):
        self._messages += [Message(json.loads(line)) for line in self._lines.take() if line.startswith("{")]
        return self._messages

    def wait_for(self, condition, what):
        wait_until(condition, lambda: f"{what}; there are {self.messages[-5:]}")

    def wait(self, count):
        wait_until(lambda: len(self.messages) >= count, lambda: f"{count} messages: {self.messages}")
        return self.messages

    def posts(self, count):
        """Waits for so many posts and values, and returns all that have come: what an observer has may not be here yet."""
        def found():
            return [message for message in self.messages if "/n/" in message.topic or "/v/" in message.topic]

        wait_until(lambda: len(found()) >= count, lambda: f"{count} posts; there are {found()[-5:]}")
        return found()
