#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/leave-nothing: whatever a command started ends with it, or by a signal."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "leave-nothing"
#: Seconds in which the tool has ended, also on a busy machine.
PATIENCE = 60


class LeaveNothing(unittest.TestCase):
    @staticmethod
    def set_signals(ignored):
        """What is ignored beforehand: a program inherits that, and continuous integration ignores SIGINT."""
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    def start(self, script, ignored=()):
        """Runs a script of bash, which has a pipe as its descriptor 9 and says there that it is ready.

        With the last process the other end of the pipe ends: none is asked for by a number that may be another's by now.
        """
        self.reading, writing = os.pipe()
        self.addCleanup(os.close, self.reading)
        self.process = subprocess.Popen(
            [TOOL, "bash", "-c", f"exec 9>&{writing} {writing}>&-; {script}"], pass_fds=[writing], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=lambda: self.set_signals(ignored),
        )
        os.close(writing)
        self.addCleanup(self.process.stdin.close)
        self.addCleanup(self.process.kill)

    def wait_ready(self, count=1):
        self.assertEqual(b"".join(os.read(self.reading, 1) for _ in range(count)), b"." * count)

    def assert_over(self, status):
        self.assertEqual(self.process.wait(PATIENCE), status)
        # All of them have ended when the tool has.
        os.set_blocking(self.reading, False)
        try:
            self.assertEqual(os.read(self.reading, 1), b"")
        except BlockingIOError:
            self.fail("a process is still there")

    def test_status(self):
        self.start("exit 7")
        self.assert_over(7)

    def test_status_of_a_signal(self):
        self.start("kill -KILL $$")
        self.assert_over(128 + signal.SIGKILL)

    def test_sessions_of_their_own(self):
        self.start("""(trap '' TERM HUP INT; exec setsid bash -c 'printf . >&9; sleep 900') &
                      setsid setsid bash -c 'printf . >&9; sleep 901 & sleep 902' &
                      setsid bash -c 'printf . >&9; kill -STOP $$; sleep 903' & read; exit 3""")
        self.wait_ready(3)
        self.process.stdin.close()
        self.assert_over(3)

    def test_signal(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                self.start("""setsid bash -c 'printf . >&9; sleep 900; sleep 901' & printf . >&9; wait""")
                self.wait_ready(2)
                self.process.send_signal(number)
                self.assert_over(128 + number)

    def test_those_that_do_not_hear_it(self):
        self.start("""trap '' TERM
                      setsid bash -c 'trap "" TERM; printf . >&9; sleep 900; sleep 901' & printf . >&9; wait; sleep 902""")
        self.wait_ready(2)
        self.process.send_signal(signal.SIGTERM)
        self.assert_over(128 + signal.SIGKILL)

    def test_a_stopped_one(self):
        self.start("""setsid bash -c 'printf . >&9; kill -STOP $$; sleep 900' & wait""")
        self.wait_ready()
        time.sleep(0.2)
        self.process.send_signal(signal.SIGTERM)
        self.assert_over(128 + signal.SIGTERM)

    def test_an_interrupt_is_the_commands(self):
        self.start("""trap 'exit 5' INT; printf . >&9; while :; do sleep 0.05; done""")
        self.wait_ready()
        self.process.send_signal(signal.SIGINT)
        self.assertRaises(subprocess.TimeoutExpired, self.process.wait, 0.3)
        os.kill(int(subprocess.check_output(["pgrep", "-P", str(self.process.pid)])), signal.SIGINT)
        self.assert_over(5)

    def test_ends_of_children_that_were_ignored(self):
        self.start("printf . >&9; read; exit 4", ignored=(signal.SIGCHLD,))
        self.wait_ready()
        self.process.stdin.close()
        self.assert_over(4)

    def test_nohup(self):
        self.start("printf . >&9; read; exit 4", ignored=(signal.SIGHUP,))
        self.wait_ready()
        self.process.send_signal(signal.SIGHUP)
        self.assertRaises(subprocess.TimeoutExpired, self.process.wait, 0.3)
        self.process.stdin.close()
        self.assert_over(4)

    def test_signals_of_the_command(self):
        """The command ignores no signal that its caller does not ignore."""
        command = ["sh", "-c", "grep SigIgn /proc/self/status"]
        self.assertEqual(*(
            subprocess.run(
                [*before, *command], capture_output=True, text=True, timeout=PATIENCE, check=True,
                preexec_fn=lambda: self.set_signals(()),
            ).stdout
            for before in ([], [TOOL])
        ))  # fmt: skip

    def test_a_command_that_is_not_there(self):
        result = subprocess.run([TOOL, "/nowhere/program"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((result.returncode, result.stderr), (127, "leave-nothing: /nowhere/program: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
